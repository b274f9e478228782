//! Which volume a logical unit is: its designators in VPD page 83h (SPC-4 7.8.6).

use std::fmt;

/// Designator types that name a logical unit, in order of preference for comparison: UUID, NAA, EUI-64, SCSI name string, MD5
/// logical unit identifier, T10 vendor ID, vendor specific.
const PREFERENCE: [u8; 7] = [0xa, 0x3, 0x2, 0x8, 0x7, 0x1, 0x0];
/// How many of them, from the first, no two units in the world share: UUID, NAA, EUI-64, SCSI name string.
const UNIQUE_KINDS: usize = 4;
/// Most designators that are read.
const MAX_DESIGNATORS: usize = 32;
/// The code sets ASCII and UTF-8.
const TEXT: [u8; 2] = [2, 3];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Designator {
    kind: u8,
    code_set: u8,
    bytes: Vec<u8>,
}

/// See the head of the module. Empty for a unit that reports none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Sorted.
    designators: Vec<Designator>,
}

impl Identity {
    /// Parses the page; skips designators of ports, and truncated ones.
    pub(crate) fn parse(page: &[u8]) -> Self {
        let mut designators = Vec::new();
        let length = page.get(2..4).map_or(0, |two| usize::from(u16::from_be_bytes([two[0], two[1]])));
        let mut rest = page.get(4..).unwrap_or(&[]);
        rest = &rest[..length.min(rest.len())];
        while let [first, second, _, length, body @ ..] = rest
            && designators.len() < MAX_DESIGNATORS
            && let Some((bytes, next)) = body.split_at_checked((*length).into())
        {
            let (association, kind) = (second >> 4 & 3, second & 0xf);
            if association == 0 && PREFERENCE.contains(&kind) {
                designators.push(Designator { kind, code_set: first & 0xf, bytes: bytes.to_vec() });
            }
            rest = next;
        }
        designators.sort_unstable();
        Self { designators }
    }

    fn of_kind(&self, kind: u8) -> impl Iterator<Item = &Designator> {
        self.designators.iter().filter(move |designator| designator.kind == kind)
    }

    /// The best name that no other unit in the world has, as text; `None` if it has none of those types.
    pub(crate) fn unique_name(&self) -> Option<String> {
        let mut kinds = PREFERENCE[..UNIQUE_KINDS].iter();
        // The unique types come first, so if there is such a name, it is the one that is shown.
        kinds.any(|kind| self.of_kind(*kind).next().is_some()).then(|| self.to_string())
    }

    /// Whether the unit that had this identity is now `other`. The best kind of name that both have decides, so that a target
    /// which starts to report more names does not turn old volumes into new ones. A unit that had no name may be any volume.
    pub(super) fn is_still(&self, other: &Self) -> bool {
        if self.designators.is_empty() {
            return true;
        }
        let both = |kind: &u8| self.of_kind(*kind).next().is_some() && other.of_kind(*kind).next().is_some();
        PREFERENCE.into_iter().find(both).is_some_and(|kind| self.of_kind(kind).eq(other.of_kind(kind)))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let best = PREFERENCE.into_iter().find_map(|kind| self.of_kind(kind).next());
        let Some(Designator { kind, code_set, bytes }) = best else { return write!(f, "without a name") };
        let prefix = match kind {
            0xa => "uuid.",
            0x3 => "naa.",
            0x2 => "eui.",
            0x1 => "t10.",
            _ => "",
        };
        f.write_str(prefix)?;
        if TEXT.contains(code_set) {
            let text = String::from_utf8_lossy(bytes);
            let shown = text.trim_end_matches('\0').trim_end().chars();
            return shown.map(|c| if c.is_control() { '?' } else { c }).try_for_each(|c| write!(f, "{c}"));
        }
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Page 83h with designators of (code set, association, type, designator).
    fn page(all: &[(u8, u8, u8, &[u8])]) -> Vec<u8> {
        let mut page = vec![0, 0x83, 0, 0];
        for (code_set, association, kind, bytes) in all {
            page.extend([*code_set, association << 4 | kind, 0, bytes.len() as u8]);
            page.extend_from_slice(bytes);
        }
        let length = (page.len() - 4) as u16;
        page[2..4].copy_from_slice(&length.to_be_bytes());
        page
    }

    fn identity(all: &[(u8, u8, u8, &[u8])]) -> Identity {
        Identity::parse(&page(all))
    }

    #[test]
    fn the_names_of_the_unit_count_and_those_of_the_port_do_not() {
        let (naa, port) = ((1, 0, 3, &[0x60, 1][..]), (1, 1, 4, &[0, 0, 0, 1][..]));
        let other_port = (1, 1, 4, &[0, 0, 0, 2][..]);
        assert!(identity(&[naa, port]).is_still(&identity(&[other_port, naa])));
        assert!(!identity(&[naa]).is_still(&identity(&[(1, 0, 3, &[0x60, 2])])));
        assert!(!identity(&[naa]).is_still(&identity(&[port])), "it has no name any more");
        assert!(identity(&[port]).is_still(&identity(&[naa])), "it never had one");
    }

    #[test]
    fn the_best_name_that_both_have_decides() {
        let (naa, uuid) = ((1, 0, 3, &[0x60, 1][..]), (1, 0, 0xa, &[0x10, 0, 7][..]));
        assert!(identity(&[naa]).is_still(&identity(&[naa, uuid])), "the target has learned to say a UUID");
        assert!(!identity(&[naa, uuid]).is_still(&identity(&[naa, (1, 0, 0xa, &[0x10, 0, 8])])));
    }

    #[test]
    fn a_page_may_be_cut_anywhere_and_claim_anything() {
        let whole = page(&[(1, 0, 3, &[0x60, 1]), (2, 0, 8, b"iqn.x"), (1, 0, 3, &[0x60, 2])]);
        for n in 0..whole.len() {
            assert!(Identity::parse(&whole[..n]).designators.len() <= 3);
        }
        let mut lying = whole.clone();
        lying[2] = 0xff;
        assert_eq!(Identity::parse(&lying), Identity::parse(&whole));
        lying[7] = 0xff;
        assert_eq!(Identity::parse(&lying), Identity::default());
        assert_eq!(identity(&[(1, 0, 3, &[][..]); 100]).designators.len(), MAX_DESIGNATORS);
    }

    #[test]
    fn people_see_a_name_as_they_know_it() {
        assert_eq!(identity(&[(1, 0, 3, &[0x60, 1, 0xab])]).to_string(), "naa.6001ab");
        assert_eq!(identity(&[(2, 0, 1, b"INTACT x\n")]).to_string(), "t10.INTACT x");
        assert_eq!(identity(&[]).to_string(), "without a name");
    }

    #[test]
    fn only_types_that_are_unique_in_the_world_make_a_unique_name() {
        let t10 = (2, 0, 1, &b"INTACT x"[..]);
        assert_eq!(identity(&[t10]).unique_name(), None);
        assert_eq!(identity(&[]).unique_name(), None);
        assert_eq!(identity(&[t10, (1, 0, 3, &[0x60, 1])]).unique_name().as_deref(), Some("naa.6001"));
    }
}
