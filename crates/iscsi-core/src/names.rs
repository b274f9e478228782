//! iSCSI names: form, normalisation, comparison (RFC 7143 4.2.7, RFC 3722, RFC 3980).

use std::fmt;
use std::sync::Arc;

use crate::error::ProtocolViolation;

/// Longest iSCSI name, bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 223;

/// A normalised iSCSI name; two names are the same if their bytes are.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IscsiName(Arc<str>);

impl IscsiName {
    /// Normalises by the stringprep profile of RFC 3722 and checks the form: `iqn.`, `eui.` with 16 hexadecimal digits, or
    /// `naa.` with 16 or 32.
    ///
    /// # Errors
    /// Names what is wrong with the name and the rule.
    //= rfc7143 4.2.7 NAM-01 NAM-02
    pub fn parse(text: &str) -> Result<Self, ProtocolViolation> {
        if text.is_empty() || text.len() > MAX_NAME_BYTES {
            return Err(refuse(text, "is not 1 to 223 bytes long"));
        }
        let is_plain =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.' | b':');
        let prepared = if text.bytes().all(is_plain) {
            text.to_owned()
        } else {
            let prepared = stringprep::nameprep(text)
                .map_err(|_| refuse(text, "holds characters that RFC 3722 prohibits"))?;
            if prepared.chars().any(|c| c.is_ascii() && !is_plain(c as u8)) {
                return Err(refuse(
                    text,
                    "holds ASCII characters other than letters, digits, '-', '.' and ':'",
                ));
            }
            // RFC 3722 section 5 prohibits this one in addition to nameprep: it looks like the '.' of an authority.
            if prepared.contains('\u{3002}') {
                return Err(refuse(text, "holds an ideographic full stop"));
            }
            prepared.into_owned()
        };
        if prepared.len() > MAX_NAME_BYTES {
            return Err(refuse(text, "is longer than 223 bytes once normalised"));
        }
        let hex = |s: &str, lengths: &[usize]| {
            lengths.contains(&s.len()) && s.bytes().all(|b| b.is_ascii_hexdigit())
        };
        let well_formed = match prepared.split_once('.') {
            Some(("iqn", rest)) => iqn_rest(rest),
            Some(("eui", rest)) => hex(rest, &[16]),
            Some(("naa", rest)) => hex(rest, &[16, 32]),
            _ => false,
        };
        if !well_formed {
            return Err(refuse(
                text,
                "is none of iqn.YYYY-MM.naming.authority[:label], eui.<16 hex>, naa.<16 or 32 hex>",
            ));
        }
        Ok(Self(prepared.into()))
    }

    /// The normalised text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `YYYY-MM.authority[:anything]` after `iqn.`.
fn iqn_rest(rest: &str) -> bool {
    let bytes = rest.as_bytes();
    let digits = |range: std::ops::Range<usize>| bytes[range].iter().all(u8::is_ascii_digit);
    bytes.len() > 8
        && digits(0..4)
        && bytes[4] == b'-'
        && digits(5..7)
        && matches!(
            &rest[5..7],
            "01" | "02" | "03" | "04" | "05" | "06" | "07" | "08" | "09" | "10" | "11" | "12"
        )
        && bytes[7] == b'.'
        && bytes[8] != b':'
}

fn refuse(text: &str, why: &str) -> ProtocolViolation {
    let shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
    ProtocolViolation::new("RFC 7143 4.2.7", format!("the iSCSI name \"{shown}\" {why}"))
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nam_01_forms_and_lengths() {
        for good in [
            "iqn.2001-04.com.example:disk",
            "iqn.2001-04.com.example",
            "eui.02004567A425678D",
            "naa.52004567BA64678D",
            "naa.62004567BA64678D0123456789ABCDEF",
        ] {
            assert!(IscsiName::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "iqn.",
            "iqn.2001",
            "iqn.2001-13.com",
            "iqn.2001-04.",
            "iqn.2001-04.:x",
            "eui.0200",
            "naa.0",
            "com.example",
            "eui.02004567A425678G",
        ] {
            assert!(IscsiName::parse(bad).is_err(), "{bad}");
        }
        let stem = "iqn.2001-04.com.example:";
        let fits = format!("{stem}{}", "a".repeat(223 - stem.len()));
        assert!(IscsiName::parse(&fits).is_ok());
        assert!(IscsiName::parse(&(fits + "a")).is_err());
    }

    #[test]
    fn nam_02_folds_case_and_refuses_control_characters() {
        let upper = IscsiName::parse("IQN.2001-04.COM.Example:Disk").unwrap();
        assert_eq!(upper, IscsiName::parse("iqn.2001-04.com.example:disk").unwrap());
        assert_eq!(
            IscsiName::parse("iqn.2001-04.com.example:STRASSE\u{df}").unwrap().as_str(),
            "iqn.2001-04.com.example:strassess"
        );
        for bad in [
            "a\u{3002}b",
            "a\u{ff61}b",
            "a\nb",
            "a\"b",
            "a/b",
            "a\0b",
            "a\u{2028}b",
            "a b",
            "a\u{a0}b",
            "a_b",
        ] {
            assert!(IscsiName::parse(&format!("iqn.2001-04.com.example:{bad}")).is_err(), "{bad:?}");
        }
    }
}
