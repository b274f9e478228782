//! Our initiator against Debian's tgt: another implementation's idea of the protocol.

mod support;

use initiator::Disk;
use iscsi_core::wire::Lun;
use support::{Tgt, pattern};

#[test]
fn reads_back_what_it_wrote_with_and_without_digests() {
    let Some(tgt) = Tgt::start() else { return };
    for (n, query) in ["?header_digest=none&data_digest=none", "?header_digest=crc32c&data_digest=crc32c"]
        .into_iter()
        .enumerate()
    {
        let session = tgt.session(query);
        assert_eq!(session.opening().params.digests.data, n == 1);
        assert_eq!(session.opening().params.digests.header, n == 1);
        let disk = Disk::open(&session, Lun::from_index(1)).unwrap();
        assert_eq!(disk.capacity().bytes(), 64 << 20);
        for (offset, len) in
            [(0, 512), (512, 4096), (1 << 20, 1 << 20), (8 << 20, 9 << 20), (63 << 20, 1 << 20)]
        {
            let data = pattern(offset + n as u64, len);
            disk.write(offset, &data).unwrap();
            let mut back = vec![0; len];
            disk.read(offset, &mut back).unwrap();
            assert!(back == data, "{len} bytes at {offset}");
        }
        disk.flush().unwrap();
        let medium = tgt.medium();
        assert!(medium[1 << 20..2 << 20] == pattern((1 << 20) + n as u64, 1 << 20));
        assert_eq!(session.info().unwrap().losses, 0);
        session.logout();
    }
}
