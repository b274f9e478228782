//! The ways in which the script of a row ends early.

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
