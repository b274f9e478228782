// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the programs are set to, what they keep of connections, and the room that they sum in.
#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

#define AF_INET_FAMILY 2
#define ETH_BYTES 14
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define TCP_PROTOCOL 6
#define TCP_BYTES 20
#define OPTION_BYTES_MAX 40
#define CHECKSUM_AT 16
#define FLAGS_AT 13
#define EXTENSION_HEADERS_MAX 8
/* As flow.rs has them. */
#define REQUESTS_MAX 2
#define RESEGMENTED_AFTER 8

#define FIN 1
#define SYN 2
#define RST 4
#define PSH 8
#define ACK 16

#define KIND_END 0
#define KIND_NOP 1
#define KIND_SACK 5
#define KIND_REQUEST 14
#define KIND_DATA 15
#define KIND_EXPERIMENT 254
#define SACK_BLOCK_BYTES 8

/* Methods, by their values (method.rs). */
#define DATA 4
#define WHOLE 5
#define PLACED 6

/* flow.state */
#define OPENING 0
#define PROTECTED 1
#define PLAIN 2
#define TURNED_AWAY 3

/* flow.why: the order of `Plain`. */
#define PEER_SILENT 1
#define NO_COMMON_METHOD 2
#define REQUESTS_LOST 3
#define ANSWER_STRIPPED 4
#define NO_ROOM 6

/* flow.known */
#define OURS 1
#define THEIRS 2
#define CONFIRMED 4
#define THEIRS_ASKED 8

/* flow.count and totals: the order of `Counters`, then packets of no connection. */
enum {
	STAMPED,
	VERIFIED,
	BAD_CRC,
	BAD_SUM, /* counted by the kernel */
	BARE_SENT,
	BARE_RECEIVED,
	MISSING,
	SACK_BLOCKS_DROPPED,
	RESEGMENTED,
	FLOW_COUNTERS,
	NOT_TCP = FLOW_COUNTERS,
	UNKNOWN,
	FRAGMENTS,
	FRAGMENTS_DISCARDED,
	MALFORMED,
	RESETS,
	SUPER,
	REFUSED,
	/* connections that were not let through, by flow.why; with 0, segments without a connection */
	TURNED_AWAY_WHY,
	TOTALS = TURNED_AWAY_WHY + 7,
};

/* What user space sets before it loads this. */
const volatile u64 netns_cookie;	/* the network namespace whose sockets are meant; 0: every one */
const volatile u8 offer_thesis;		/* 4, 5, or 0 for none */
const volatile u8 offer_placed;		/* whether value 6 is asked for */
const volatile u8 experimental;		/* kind 254 in place of 14 and 15 */
const volatile u8 strict;		/* 1: a connection whose CRCs vanish is reset; 2: nor is any let through that would be plain */
const volatile u32 table[16][256];	/* slicing by 16: the CRC of a byte that 0 to 15 bytes of zeros follow */

/* No connection is plain. */
#define required (strict == 2)

/* Both ends of a connection; IPv4 as ::ffff:a.b.c.d. All in network byte order. */
struct key {
	u32 local[4];
	u32 remote[4];
	u16 local_port;
	u16 remote_port;
};

struct flow {
	u32 our_isn;
	u32 their_isn;
	u32 wrong_in_a_row;
	u8 state;
	u8 method;
	u8 why;
	u8 known;
	u8 their_thesis;
	u8 their_placed;
	u8 syns;
	u8 syn_acks;
	u32 unanswered_isn;	/* a SYN of the peer's that our TCP has not answered */
	u8 unanswered_thesis;
	u8 unanswered_placed;
	u8 has_unanswered;
	u8 refused;		/* it has found the table of those that stand full */
	u8 reserved[4];
	u64 count[FLOW_COUNTERS];
};

/* Connections that have not opened: the oldest gives way, so that a flood of SYNs takes nothing from those that stand. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct key);
	__type(value, struct flow);
} opening SEC(".maps");

/* Connections that stand. User space sets how many. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TOTALS);
	__type(key, u32);
	__type(value, u64);
} totals SEC(".maps");

/* What is summed: pseudo header and TCP header, or the place, and then the data piece by piece. */
#define HEAD_MAX 128
#define PIECE_MAX 2048
#define PIECES_MAX 32
#define JOINED_MAX 128

struct scratch {
	u8 options[64];
	u8 head[HEAD_MAX];
	u8 piece[PIECE_MAX + 16];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct scratch *scratch(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&scratches, &zero);
}

static __always_inline void total(u32 what)
{
	u64 *count = bpf_map_lookup_elem(&totals, &what);

	if (count)
		*count += 1;
}

static __always_inline void counted(struct flow *flow, u32 what)
{
	__sync_fetch_and_add(&flow->count[what], 1);
	total(what);
}
