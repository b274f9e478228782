//! Serial numbers (RFC 7143 4.2.2.1, RFC 1982 with SERIAL_BITS = 32).
//!
//! They wrap, so "greater" only means "less than 2^31 ahead". There is no `PartialOrd`: a plain `<` would be
//! wrong at the first wrap-around, which no short test reaches. At a distance of exactly 2^31 neither is
//! less, as in RFC 1982.

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u32);

        //= rfc7143 4.2.2.1 NUM-04
        impl $name {
            /// The number after this one; 0 follows 0xffffffff.
            pub const fn next(self) -> Self {
                self.add(1)
            }

            /// This number plus `n`, modulo 2^32.
            #[allow(clippy::should_implement_trait, reason = "`+` would hide that it wraps")]
            pub const fn add(self, n: u32) -> Self {
                $name(self.0.wrapping_add(n))
            }

            /// Is `self` before `other`?
            pub const fn lt(self, other: Self) -> bool {
                let ahead = self.distance_to(other);
                ahead != 0 && ahead < 1 << 31
            }

            /// Is `self` before `other` or equal to it?
            pub const fn le(self, other: Self) -> bool {
                self.0 == other.0 || self.lt(other)
            }

            /// Is `self` after `other`?
            pub const fn gt(self, other: Self) -> bool {
                other.lt(self)
            }

            /// Is `self` after `other` or equal to it?
            pub const fn ge(self, other: Self) -> bool {
                other.le(self)
            }

            /// How many steps of `next` lead from `self` to `later`, modulo 2^32.
            pub const fn distance_to(self, later: Self) -> u32 {
                later.0.wrapping_sub(self.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

serial!(
    /// Command sequence number, one per session (CmdSN, ExpCmdSN, MaxCmdSN, RefCmdSN).
    CmdSn
);
serial!(
    /// Status sequence number, one per connection (StatSN, ExpStatSN).
    StatSn
);
serial!(
    /// Number of a Data PDU inside its sequence or command (DataSN, ExpDataSN).
    DataSn
);
serial!(
    /// Number of an R2T inside its command (R2TSN).
    R2tSn
);
