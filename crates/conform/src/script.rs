//! What the scripts of rows for both roles share: their order, and the ways in which one ends early.

/// Sections of the protocol, in the order of the table.
const SECTIONS: &[&str] = &[
    "PDU", "AHS", "DIG", "TXT", "KEY", "LGN", "SEC", "NAM", "SES", "DSC", "TXR", "NUM", "MCS", "DAT", "UNS",
    "R2T", "RES", "RSP", "ERL", "SNK", "TMF", "FAB", "ASY", "LGO", "NOP", "REJ", "P2",
];

/// The section of a row: `NUM` of `NUM-03`.
pub(crate) fn section(id: &str) -> &str {
    id.split('-').next().unwrap_or(id)
}

/// The place of a row's section in the table, if it has one there.
pub(crate) fn place(id: &str) -> Option<usize> {
    SECTIONS.iter().position(|name| *name == section(id))
}

/// One of several ways to make a PDU wrong, with its name.
pub(crate) type Wrong<T> = (&'static str, fn(&mut T));

/// Ends a script with a broken rule unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err($crate::Stop::Fail(format!($($words)+)));
        }
    };
}

/// Ends a script with a broken rule.
macro_rules! fail {
    ($($words:tt)+) => {
        return Err($crate::Stop::Fail(format!($($words)+)))
    };
}

/// Ends a script because the rule does not apply here.
macro_rules! skip {
    ($($words:tt)+) => {
        return Err($crate::Stop::NotApplicable(format!($($words)+)))
    };
}

pub(crate) use {ensure, fail, skip};
