//! Options, and clients that break their rules.

use std::io::Write;
use std::sync::Arc;

use blockstore::RamStore;
use nbd::wire::{export_flag, option, reply};

use crate::lab::{Lab, MEMORY, SIZE, text};

fn lab() -> Lab {
    Lab::new(Arc::new(RamStore::new(SIZE, 512).unwrap()))
}

#[test]
fn exports_are_listed_and_described() {
    let lab = lab();
    let mut client = lab.client();
    client.greet();
    client.option(option::LIST, &[]);
    assert_eq!(client.reply(), (reply::SERVER, text("disk")));
    assert_eq!(client.reply(), (reply::ACK, Vec::new()));
    client.option(option::INFO, &[&text("")[..], &[0, 2, 0, 1, 0, 3]].concat());
    let (kind, export) = client.reply();
    assert_eq!((kind, &export[..10]), (reply::INFO, &[&[0, 0][..], &SIZE.to_be_bytes()].concat()[..]));
    let flags = u16::from_be_bytes([export[10], export[11]]);
    let wanted =
        export_flag::HAS_FLAGS | export_flag::SEND_FLUSH | export_flag::SEND_FUA | export_flag::SEND_TRIM;
    assert_eq!(flags & wanted, wanted);
    assert_eq!(flags & (export_flag::READ_ONLY | export_flag::SEND_DF), 0, "DF needs structured replies");
    assert_eq!(client.reply(), (reply::INFO, [&[0, 1][..], b"disk"].concat()));
    let (_, sizes) = client.reply();
    let longest = (MEMORY / 4) as u32;
    let numbers: Vec<u8> = [512u32, 4096, longest].iter().flat_map(|size| size.to_be_bytes()).collect();
    assert_eq!(sizes, [&[0, 3][..], &numbers].concat());
    assert_eq!(client.reply().0, reply::ACK);
}

#[test]
fn clients_of_the_old_option_are_served() {
    let lab = lab();
    for (flags, zeroes) in [(1u32, 124), (3, 0)] {
        let mut client = lab.client();
        client.bytes(18);
        client.stream.write_all(&flags.to_be_bytes()).unwrap();
        client.option(option::EXPORT_NAME, b"disk");
        assert_eq!(client.bytes(10)[..8], SIZE.to_be_bytes());
        assert!(client.bytes(zeroes).iter().all(|byte| *byte == 0));
        assert_eq!(client.run((nbd::wire::command::READ, 0), 0, 512, &[]).data, [0; 512]);
    }
}

#[test]
fn what_is_wrong_with_an_option_is_said_and_the_handshake_goes_on() {
    let lab = lab();
    let mut client = lab.client();
    client.greet();
    let long = vec![b'x'; 20_000];
    let cases: [(u32, &[u8], u32); 11] = [
        (99, b"", reply::ERR_UNSUP),
        (option::LIST, b"x", reply::ERR_INVALID),
        (option::STARTTLS, b"", reply::ERR_POLICY),
        (option::INFO, b"", reply::ERR_INVALID),
        (option::INFO, &[255, 255, 255, 255], reply::ERR_INVALID),
        (option::INFO, &[0, 0, 0, 0, 0, 9], reply::ERR_INVALID),
        (option::INFO, &[0, 0, 0, 1, 0xff, 0, 0], reply::ERR_INVALID),
        (option::INFO, &[0, 0, 0, 1, b'x', 0, 0], reply::ERR_UNKNOWN),
        (option::INFO, &long, reply::ERR_TOO_BIG),
        (option::SET_META_CONTEXT, &[0, 0, 0, 0, 0, 0, 0, 0], reply::ERR_INVALID),
        (option::GO, &[0, 0, 0, 1, b'x', 0, 0], reply::ERR_UNKNOWN),
    ];
    for (option, data, kind) in cases {
        client.option(option, data);
        assert_eq!(client.reply().0, kind, "option {option} with {} bytes", data.len());
    }
    client.option(option::STRUCTURED_REPLY, &[]);
    assert_eq!(client.reply().0, reply::ACK);
    // The count claims more queries than there are.
    client.option(option::LIST_META_CONTEXT, &[0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0]);
    assert_eq!(client.reply().0, reply::ERR_INVALID);
    client.option(option::LIST_META_CONTEXT, &[0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(client.reply(), (reply::META_CONTEXT, [&[0; 4][..], b"base:allocation"].concat()));
    assert_eq!(client.reply().0, reply::ACK);
    client.option(option::ABORT, &[]);
    assert_eq!(client.reply().0, reply::ACK);
    assert!(client.is_closed());
}

#[test]
fn large_blocks_have_to_be_negotiated() {
    let lab = Lab::new(Arc::new(RamStore::new(SIZE, 4096).unwrap()));
    let mut client = lab.client();
    client.greet();
    client.option(option::GO, &[&text("")[..], &[0, 0]].concat());
    assert_eq!(client.reply().0, reply::ERR_BLOCK_SIZE_REQD);
    client.option(option::GO, &[&text("")[..], &[0, 1, 0, 3]].concat());
    assert_eq!(client.reply().0, reply::INFO);
    assert_eq!(client.reply().1[2..6], 4096u32.to_be_bytes());
    assert_eq!(client.reply().0, reply::ACK);
    let read = (nbd::wire::command::READ, 0);
    assert_eq!(client.run(read, 512, 4096, &[]).error, 22, "EINVAL");
    assert_eq!(client.run(read, 4096, 4096, &[]).data, [0; 4096]);
}

#[test]
fn who_does_not_speak_the_protocol_is_left() {
    let lab = lab();
    let garbage: [&[u8]; 4] =
        [&[0, 0, 0, 0], &[0, 0, 0, 0xff], &[0, 0, 0, 2], b"\0\0\0\x03IHAVEOPX\0\0\0\x03\0\0\0\0"];
    for said in garbage {
        let mut client = lab.client();
        client.bytes(18);
        client.stream.write_all(said).unwrap();
        assert!(client.is_closed(), "{said:?}");
    }
    let mut client = lab.client();
    client.greet();
    client.option(option::EXPORT_NAME, b"nothing");
    assert!(client.is_closed(), "it has no other way to say no");
    // Other clients are served meanwhile and afterwards.
    assert_eq!(lab.open(true).run((nbd::wire::command::READ, 0), 0, 512, &[]).error, 0);
}

/// However many options a client sends, the server drops it in the end.
#[test]
fn a_handshake_without_end_ends() {
    let lab = lab();
    let mut client = lab.client();
    client.greet();
    let mut answered = 0;
    for _ in 0..300 {
        let header = [&b"IHAVEOPT"[..], &99u32.to_be_bytes(), &[0; 4]].concat();
        if client.stream.write_all(&header).is_err() {
            break;
        }
    }
    let mut everything = Vec::new();
    let _ = std::io::Read::read_to_end(&mut client.stream, &mut everything);
    answered +=
        everything.windows(8).filter(|window| **window == 0x0003_e889_0455_65a9u64.to_be_bytes()).count();
    assert!(answered <= 256, "{answered}");
}
