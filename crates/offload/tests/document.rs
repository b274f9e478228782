//! `docs/engine-interface.md` against the code: every table of bytes and every table of codes, row by row.

use std::collections::BTreeMap;

use offload::encoding::*;

const DOCUMENT: &str = include_str!("../../../docs/engine-interface.md");

/// The rows of the table under each third-level heading: the cells, without code marks.
fn sections() -> BTreeMap<&'static str, Vec<Vec<&'static str>>> {
    let mut sections: BTreeMap<_, Vec<Vec<_>>> = BTreeMap::new();
    let mut title = "";
    for line in DOCUMENT.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            title = heading;
        } else if let Some(cells) = line.strip_prefix("| ").filter(|_| !title.is_empty()) {
            let cells = cells.trim_end_matches('|').split('|').map(|cell| cell.trim().trim_matches('`'));
            sections.entry(title).or_default().push(cells.collect());
        }
        if line.starts_with("## ") {
            title = "";
        }
    }
    sections
}

fn number(cell: &str) -> usize {
    let parsed = cell.strip_prefix("0x").map_or(cell.parse(), |digits| usize::from_str_radix(digits, 16));
    parsed.unwrap_or_else(|_| panic!("{cell} is a number"))
}

#[test]
fn every_byte_of_every_record_is_where_the_document_says() {
    let sections = sections();
    let check = |name: &str, bytes: usize, fields: &[FieldPlace], has_kind: bool| {
        let rows = &sections[name][1..];
        let mut at = 0;
        let mut named = Vec::new();
        for row in rows {
            assert_eq!(number(row[0]), at, "{name}: rows follow each other without a gap");
            at += number(row[1]);
            if row[2] != "-" && row[2] != "kind" {
                named.push((row[2], number(row[0]), number(row[1])));
            }
        }
        assert_eq!(at, bytes, "{name}: its length");
        assert_eq!(rows[0][2] == "kind", has_kind, "{name}: kind");
        let code: Vec<_> = fields.iter().map(|field| (field.name, field.offset, field.bytes)).collect();
        assert_eq!(named, code, "{name}");
    };
    macro_rules! check {
        ($has_kind:literal: $($name:ident)*) => { $(
            check(stringify!($name), $name::BYTES, $name::FIELDS, $has_kind);
        )* };
    }
    check!(true: OpenConn SetParams PostTask Abort SendRaw SetPoly Resync);
    check!(true: TaskDone RawPdu DigestError SnackSent DataackSent NeedResync);
    check!(false: SglElement SessionEntry CommandEntry R2tEntry SnackEntry DataAddressEntry);
}

#[test]
fn every_code_has_the_number_of_the_document() {
    let sections = sections();
    macro_rules! check {
        ($($name:ident)*) => { $(
            let rows: Vec<_> = sections[stringify!($name)][1..]
                .iter()
                .map(|row| (number(row[0]) as u8, row[1]))
                .collect();
            assert_eq!(rows, $name::ALL, stringify!($name));
        )* };
    }
    check!(DescriptorKind CompletionKind TaskResult RawReason StopReason DigestAction);
    check!(SessionState CommandState SnackState SnackCause);
}

#[test]
fn the_first_byte_of_a_descriptor_is_its_kind_and_what_is_emitted_is_parsed() {
    for (kind, name) in DescriptorKind::ALL {
        // Every byte has a value of its own, so that two fields that change places are noticed.
        let mut record: [u8; RECORD_BYTES] = std::array::from_fn(|at| at as u8 + 1);
        record[0] = *kind;
        let descriptor = Descriptor::parse(&record).expect("a defined kind");
        let emitted = descriptor.emit();
        assert_eq!(emitted[0], *kind, "{name}");
        assert_eq!(Descriptor::parse(&emitted), Some(descriptor), "{name}");
        assert!(emitted.iter().zip(&record).all(|(new, old)| new == old || *new == 0), "{name}");
    }
    for (kind, name) in CompletionKind::ALL {
        let mut record: [u8; RECORD_BYTES] = std::array::from_fn(|at| at as u8 + 1);
        record[0] = *kind;
        let completion = Completion::parse(&record).expect("a defined kind");
        assert_eq!(Completion::parse(&completion.emit()), Some(completion), "{name}");
        assert_eq!(completion.emit()[0], *kind, "{name}");
    }
}
