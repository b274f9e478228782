//! `key=value` text and its values.

use iscsi_wire::*;
use proptest::prelude::*;

// covers: TXT-01
#[test]
fn txt_01_pairs_end_with_nul_and_split_at_the_first_equals() {
    let text = b"InitiatorName=iqn.2024-01.org.example:a=b\0SessionType=Normal\0TargetAlias=\0";
    let pairs = TextPairs::parse(text).unwrap();
    let expected =
        [("InitiatorName", "iqn.2024-01.org.example:a=b"), ("SessionType", "Normal"), ("TargetAlias", "")];
    assert_eq!(pairs, expected);
    assert_eq!(TextPairs::parse(b""), Ok(vec![]));
    assert_eq!(TextPairs::parse(b"A=1\0B=2"), Err(WireError::TextNotTerminated));
    assert_eq!(TextPairs::parse(b"A=1\0B\0"), Err(WireError::TextNoEquals { offset: 4 }));
    assert_eq!(TextPairs::parse(b"A=1\0\0"), Err(WireError::TextNoEquals { offset: 4 }));
    assert_eq!(TextPairs::parse(b"\0"), Err(WireError::TextNoEquals { offset: 0 }));
    assert_eq!(TextPairs::parse(b"A=\xff\0"), Err(WireError::TextNotUtf8 { offset: 2 }));
}

/// Keys are case sensitive, so a lower-case spelling is another key; it parses, and is answered
/// NotUnderstood.
// covers: TXT-01
#[test]
fn txt_01_case_sensitive() {
    let pairs = TextPairs::parse(b"maxburstlength=512\0MaxBurstLength=512\0").unwrap();
    assert_eq!(pairs, [("maxburstlength", "512"), (keys::MAX_BURST_LENGTH, "512")]);
    assert_ne!(pairs[0].0, keys::MAX_BURST_LENGTH);
}

// covers: TXT-02
#[test]
fn txt_02_key_form_and_sizes() {
    for good in ["A", "iSCSIProtocolLevel", "X#NodeArchitecture", "X-org.example.Key_1+2@3", "CHAP_A"] {
        assert!(keys::is_key_name(good), "{good}");
    }
    for bad in ["", "1A", "-A", "A B", "A:B", "A#B", "X#", "Ä", "A\n", "X##a", "#A"] {
        assert!(!keys::is_key_name(bad), "{bad}");
        let text = format!("{bad}=1\0");
        assert_eq!(TextPairs::parse(text.as_bytes()), Err(WireError::KeyForm { offset: 0 }), "{bad}");
    }
    let pair = |key: usize, value: usize| format!("{}={}\0", "K".repeat(key), "v".repeat(value)).into_bytes();
    assert!(TextPairs::parse(&pair(63, 255)).is_ok());
    assert_eq!(TextPairs::parse(&pair(64, 1)), Err(WireError::KeyTooLong { offset: 0, length: 64 }));
    let too_long = |max| Err(WireError::ValueTooLong { offset: 4, length: 256, max });
    assert_eq!(TextPairs::parse(&pair(3, 256)), too_long(255));
    assert!(TextPairs::parse_with_limit(&pair(3, 256), 256).is_ok());
    assert_eq!(TextPairs::parse_with_limit(&pair(3, 256), 10), too_long(255));
}

/// The long items of CHAP need no limit from the caller; the limit for a name stays as it is.
// covers: TXT-02, SEC-05
#[test]
fn sec_05_long_values_by_key() {
    let text = |key: &str, length: usize| format!("{key}={}\0", "0".repeat(length)).into_bytes();
    for key in [keys::CHAP_C, keys::CHAP_R] {
        assert!(TextPairs::parse(&text(key, 2050)).is_ok());
        let offset = key.len() + 1;
        let error = WireError::ValueTooLong { offset, length: 2051, max: 2050 };
        assert_eq!(TextPairs::parse(&text(key, 2051)), Err(error));
    }
    assert!(TextPairs::parse(&text(keys::CHAP_N, 256)).is_err());
}

#[test]
fn every_key_of_the_standard_has_the_form() {
    assert_eq!(keys::ALL.len(), 45);
    for (i, key) in keys::ALL.iter().enumerate() {
        assert!(keys::is_key_name(key), "{key}");
        assert!(!keys::ALL[..i].contains(key), "{key} twice");
    }
}

// covers: TXT-01
#[test]
fn txt_01_builder_writes_what_the_parser_reads() {
    let mut builder = TextBuilder::new();
    assert!(builder.is_empty());
    builder.push(keys::HEADER_DIGEST, "CRC32C,None").push(keys::TARGET_ALIAS, String::from("a=b"));
    let text = builder.finish();
    assert_eq!(text, b"HeaderDigest=CRC32C,None\0TargetAlias=a=b\0");
    assert_eq!(TextPairs::parse(&text).unwrap()[1], ("TargetAlias", "a=b"));
    assert!(builder.is_empty() && builder.finish().is_empty());
    // A NUL inside a value must not become a second key.
    builder.push(keys::TARGET_ALIAS, "x\0AuthMethod=None");
    assert_eq!(builder.len(), 14);
    assert_eq!(builder.finish(), b"TargetAlias=x\0");
}

// covers: TXT-03
#[test]
fn txt_03_numbers() {
    for (text, number) in [
        ("0", 0),
        ("8192", 8192),
        ("010", 10),
        ("00000000000000000000000000000007", 7),
        ("0x20000", 131_072),
        ("0X1f", 31),
        ("0xFf", 255),
        ("0x0000000000000000000000000000000a", 10),
        ("18446744073709551615", u64::MAX),
        ("0xffffffffffffffff", u64::MAX),
    ] {
        assert_eq!(parse_number(text), Ok(number), "{text}");
    }
    for text in
        ["", "-1", "+1", " 1", "1 ", "0x", "0xg", "1f", "1.0", "0b1", "x1", "0x-1", "٣", "1,2", "0x0x1"]
    {
        assert_eq!(parse_number(text), Err(WireError::NumberForm), "{text}");
    }
    for text in ["18446744073709551616", "0x10000000000000000", "99999999999999999999999999"] {
        assert_eq!(parse_number(text), Err(WireError::NumberTooLarge), "{text}");
    }
    assert_eq!(parse_number("99999999999999999999999999z"), Err(WireError::NumberForm));
}

#[test]
fn booleans_and_lists() {
    assert_eq!((parse_bool("Yes"), parse_bool("No")), (Ok(true), Ok(false)));
    for text in ["yes", "NO", "", "1", "Yes ", "Yes,No"] {
        assert_eq!(parse_bool(text), Err(WireError::BooleanForm), "{text}");
    }
    assert_eq!(parse_list("CRC32C,None"), Ok(vec!["CRC32C", "None"]));
    assert_eq!(parse_list("None"), Ok(vec!["None"]));
    for text in ["", ",", "None,", ",None", "CRC32C,,None"] {
        assert_eq!(parse_list(text), Err(WireError::ListForm), "{text}");
    }
}

// covers: TXT-03
#[test]
fn txt_03_binary_values() {
    for (text, bytes) in [
        ("0x00", &[0][..]),
        ("0x1", &[1]),
        ("0xabc", &[0x0a, 0xbc]),
        ("0XaBcD", &[0xab, 0xcd]),
        ("0bAA==", &[0]),
        ("0BAQI=", &[1, 2]),
        ("0bAQID", &[1, 2, 3]),
        ("0b+/8=", &[0xfb, 0xff]),
    ] {
        assert_eq!(parse_binary(text, 3).as_deref(), Ok(bytes), "{text}");
    }
    for text in [
        "", "0", "0x", "0b", "12", "AQID", "0xzz", "0bA", "0bAQ", "0b====", "0b A==", "0x 1", "é1", "0é",
        "x0ab",
    ] {
        assert_eq!(parse_binary(text, 16), Err(WireError::BinaryForm), "{text}");
    }
}

/// 1024 bytes are the limit of CHAP items, to the byte, in each encoding and letter case.
// covers: SEC-05
#[test]
fn sec_05_sizes_in_each_encoding() {
    for length in [1, 16, 1023, 1024, 1025] {
        let bytes: Vec<u8> = (0..length).map(|i| (i * 7 + 200) as u8).collect();
        let hex = encode_hex(&bytes);
        assert!(hex.len() <= max_encoded_length(length));
        let base64 = encode_base64(&bytes);
        for text in [
            &hex,
            &hex.to_uppercase().replacen("0X", "0x", 1),
            &hex.to_uppercase(),
            &base64,
            &base64.replacen('b', "B", 1),
        ] {
            let expected = if length > MAX_BINARY_ITEM_LENGTH {
                Err(WireError::BinaryTooLong { max: 1024 })
            } else {
                Ok(bytes.clone())
            };
            assert_eq!(parse_binary(text, MAX_BINARY_ITEM_LENGTH), expected, "{length} bytes");
        }
    }
    // With an odd number of digits the first one stands for a byte.
    assert!(parse_binary(&format!("0x{}", "f".repeat(2047)), 1024).is_ok());
    assert!(parse_binary(&format!("0x{}", "f".repeat(2049)), 1024).is_err());
}

proptest! {
    // covers: TXT-03
    #[test]
    fn txt_03_binary_round_trip(bytes in prop::collection::vec(any::<u8>(), 1..1025)) {
        prop_assert_eq!(parse_binary(&encode_hex(&bytes), 1024), Ok(bytes.clone()));
        prop_assert_eq!(parse_binary(&encode_base64(&bytes), 1024), Ok(bytes.clone()));
        let short = bytes.len() - 1;
        let too_long: Result<Vec<u8>, _> = Err(WireError::BinaryTooLong { max: short });
        prop_assert_eq!(parse_binary(&encode_hex(&bytes), short), too_long.clone());
        prop_assert_eq!(parse_binary(&encode_base64(&bytes), short), too_long);
    }

    // covers: TXT-03
    #[test]
    fn txt_03_numbers_round_trip(number in any::<u64>()) {
        prop_assert_eq!(parse_number(&number.to_string()), Ok(number));
        prop_assert_eq!(parse_number(&format!("{number:#x}")), Ok(number));
        prop_assert_eq!(parse_number(&format!("0X00{number:X}")), Ok(number));
    }

    // covers: TXT-01
    #[test]
    fn txt_01_text_round_trip(pairs in prop::collection::vec(("[A-Z][A-Za-z0-9.+@_-]{0,62}", "[^\\x00]{0,60}"), 0..20)) {
        let mut builder = TextBuilder::new();
        for (key, value) in &pairs {
            builder.push(key, value);
        }
        let text = builder.finish();
        let parsed = TextPairs::parse(&text).unwrap();
        let expected: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        prop_assert_eq!(parsed, expected);
    }

    /// Nothing panics, and text that parses is within the limits and is written back as the same bytes.
    // covers: TXT-01, TXT-02
    #[test]
    fn txt_01_any_text(text in prop::collection::vec(prop::sample::select(b"AZaz09=\0\0.-#X,x\xff\xc3\xa4".to_vec()), 0..80)) {
        if let Ok(pairs) = TextPairs::parse(&text) {
            let mut builder = TextBuilder::new();
            for (key, value) in pairs {
                prop_assert!(key.len() <= 63 && value.len() <= 255);
                builder.push(key, value);
            }
            prop_assert_eq!(builder.finish(), text);
        }
    }

    #[test]
    fn values_are_total(text in any::<String>(), max in 0usize..64) {
        let _ = (parse_number(&text), parse_bool(&text), parse_list(&text));
        for text in [text.clone(), format!("0x{text}"), format!("0b{text}")] {
            if let Ok(bytes) = parse_binary(&text, max) {
                prop_assert!(bytes.len() <= max);
            }
        }
    }
}
