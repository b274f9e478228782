/* Lets programs that send SCSI commands by the SG_IO ioctl (sg3-utils) send them to an iSCSI unit, with libiscsi and without a
 * kernel's help: preloaded, it opens names that begin with "iscsi://" as if they were SCSI generic devices.
 *
 *   cc -shared -fPIC -o sg_iscsi.so sg_iscsi.c -liscsi -ldl
 *   LD_PRELOAD=./sg_iscsi.so sg_inq iscsi://127.0.0.1:3260/iqn.2004-10.com.example:disk/0
 *
 * One thread, version 3 of the interface, CDBs of up to 16 bytes. INTACT_SG_INITIATOR names the initiator. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <scsi/sg.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

enum { UNITS = 16, ATTENTIONS = 8, SG_MAJOR = 21, SG_VERSION = 30536, LONGEST_CDB = 16 };

static const char SCHEME[] = "iscsi://";

/* A unit that is open. */
static struct unit {
    int fd;
    int lun;
    struct iscsi_context *iscsi;
} units[UNITS];

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static struct unit *unit_of(int fd)
{
    for (int i = 0; i < UNITS; i++)
        if (units[i].iscsi && units[i].fd == fd)
            return &units[i];
    return NULL;
}

static int is_unit(const char *path)
{
    return path && strncmp(path, SCHEME, sizeof SCHEME - 1) == 0;
}

static int fail(struct iscsi_context *iscsi, const char *what)
{
    fprintf(stderr, "sg_iscsi: %s: %s\n", what, iscsi ? iscsi_get_error(iscsi) : "no memory");
    if (iscsi)
        iscsi_destroy_context(iscsi);
    errno = ENXIO;
    return -1;
}

/* What a new nexus is told, no program wants to hear. */
static void take_attentions(struct iscsi_context *iscsi, int lun)
{
    for (int i = 0; i < ATTENTIONS; i++) {
        struct scsi_task *task = iscsi_testunitready_sync(iscsi, lun);
        int more = task && task->status == SCSI_STATUS_CHECK_CONDITION && task->sense.key == SCSI_SENSE_UNIT_ATTENTION;
        if (task)
            scsi_free_scsi_task(task);
        if (!more)
            return;
    }
}

static int open_unit(const char *url)
{
    const char *name = getenv("INTACT_SG_INITIATOR");
    struct unit *unit = NULL;
    for (int i = 0; i < UNITS && !unit; i++)
        if (!units[i].iscsi)
            unit = &units[i];
    if (!unit) {
        errno = EMFILE;
        return -1;
    }
    struct iscsi_context *iscsi = iscsi_create_context(name ? name : "iqn.2004-10.com.example:sg3");
    if (!iscsi)
        return fail(NULL, url);
    struct iscsi_url *parts = iscsi_parse_full_url(iscsi, url);
    if (!parts)
        return fail(iscsi, url);
    /* Each program is the same initiator port as the one before it: registrations are of ports. */
    iscsi_set_isid_random(iscsi, 1, (int)(unit - units));
    iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_CRC32C_NONE);
    iscsi_set_targetname(iscsi, parts->target);
    int failed = iscsi_connect_sync(iscsi, parts->portal) || iscsi_login_sync(iscsi);
    unit->lun = parts->lun;
    iscsi_destroy_url(parts);
    if (failed)
        return fail(iscsi, url);
    take_attentions(iscsi, unit->lun);
    /* A number that no other file has. */
    unit->fd = NEXT(open)("/dev/null", O_RDWR | O_CLOEXEC);
    unit->iscsi = iscsi;
    return unit->fd;
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return is_unit(path) ? open_unit(path) : NEXT(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return is_unit(path) ? open_unit(path) : NEXT(open64)(path, flags, mode);
}

/* What open becomes in programs that were built with checks. */
int __open_2(const char *path, int flags)
{
    return open(path, flags);
}

int __open64_2(const char *path, int flags)
{
    return open64(path, flags);
}

int close(int fd)
{
    struct unit *unit = unit_of(fd);
    if (unit) {
        struct iscsi_context *iscsi = unit->iscsi;
        unit->iscsi = NULL;
        iscsi_logout_sync(iscsi);
        iscsi_destroy_context(iscsi);
    }
    return NEXT(close)(fd);
}

/* What the programs take for an SCSI generic device. */
#define LOOK(type, name, key_type, key, ours)                  \
    int name(key_type key, struct type *found)                 \
    {                                                          \
        if (!(ours))                                           \
            return NEXT(name)(key, found);                     \
        memset(found, 0, sizeof *found);                       \
        found->st_mode = S_IFCHR | 0600;                       \
        found->st_rdev = makedev(SG_MAJOR, 0);                 \
        return 0;                                              \
    }
LOOK(stat, stat, const char *, path, is_unit(path))
LOOK(stat64, stat64, const char *, path, is_unit(path))
LOOK(stat, fstat, int, fd, unit_of(fd))
LOOK(stat64, fstat64, int, fd, unit_of(fd))

/* Carries out one command; the data and the sense go where the program wants them. */
static int send_command(struct unit *unit, struct sg_io_hdr *io)
{
    if (io->interface_id != 'S' || io->cmd_len > LONGEST_CDB || io->iovec_count) {
        errno = EINVAL;
        return -1;
    }
    int to = io->dxfer_direction == SG_DXFER_TO_DEV;
    int from = io->dxfer_direction == SG_DXFER_FROM_DEV || io->dxfer_direction == SG_DXFER_TO_FROM_DEV;
    int direction = to ? SCSI_XFER_WRITE : from ? SCSI_XFER_READ : SCSI_XFER_NONE;
    int length = direction == SCSI_XFER_NONE ? 0 : (int)io->dxfer_len;
    struct scsi_task *task = scsi_create_task(io->cmd_len, io->cmdp, length ? direction : SCSI_XFER_NONE, length);
    struct iscsi_data data = { .size = length, .data = io->dxferp };
    if (!task || !iscsi_scsi_command_sync(unit->iscsi, unit->lun, task, to && length ? &data : NULL)) {
        fprintf(stderr, "sg_iscsi: %s\n", iscsi_get_error(unit->iscsi));
        errno = EIO;
        return -1;
    }
    io->status = (unsigned char)task->status;
    io->masked_status = (io->status >> 1) & 0x1f;
    io->host_status = io->driver_status = io->msg_status = 0;
    io->sb_len_wr = 0;
    io->duration = 0;
    io->info = io->status ? SG_INFO_CHECK : SG_INFO_OK;
    io->resid = task->residual_status == SCSI_RESIDUAL_UNDERFLOW ? (int)task->residual : 0;
    if (io->status == SCSI_STATUS_CHECK_CONDITION && task->datain.size > 2 && io->sbp) {
        int sense = task->datain.size - 2;
        io->sb_len_wr = (unsigned char)(sense < io->mx_sb_len ? sense : io->mx_sb_len);
        memcpy(io->sbp, task->datain.data + 2, io->sb_len_wr);
        io->driver_status = 8; /* sense data are there */
    } else if (io->status == SCSI_STATUS_GOOD && from && task->datain.data) {
        memcpy(io->dxferp, task->datain.data, task->datain.size < length ? task->datain.size : length);
    }
    scsi_free_scsi_task(task);
    return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list more;
    va_start(more, request);
    void *argument = va_arg(more, void *);
    va_end(more);
    struct unit *unit = unit_of(fd);
    if (!unit)
        return NEXT(ioctl)(fd, request, argument);
    switch (request) {
    case SG_IO:
        return send_command(unit, argument);
    case SG_GET_VERSION_NUM:
        *(int *)argument = SG_VERSION;
        return 0;
    case SG_SET_RESERVED_SIZE:
    case SG_SET_TIMEOUT:
        return 0;
    case SG_GET_RESERVED_SIZE:
        *(int *)argument = 1 << 20;
        return 0;
    default:
        errno = ENOTTY;
        return -1;
    }
}
