//! Identifiers that are compared but never calculated with: ISID, TSIH, CID and the two task tags.

use std::fmt;

macro_rules! tag {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The reserved value that means "no tag".
            pub const RESERVED: $name = $name(0xffff_ffff);

            /// Is this the reserved value?
            pub const fn is_reserved(self) -> bool {
                self.0 == Self::RESERVED.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.is_reserved() { f.write_str("ffffffff") } else { self.0.fmt(f) }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

tag!(
    /// Initiator Task Tag (RFC 7143 11.2.1.8): the initiator's name for a task.
    Itt
);
tag!(
    /// Target Transfer Tag (RFC 7143 11.7.4): the target's name for a solicited transfer or an open exchange.
    Ttt
);

/// Target Session Identifying Handle (RFC 7143 11.12.6). Zero requests a new session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tsih(pub u16);

/// Connection ID (RFC 7143 11.12.7), chosen by the initiator, unique inside its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid(pub u16);

impl fmt::Display for Tsih {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The naming authority of an ISID: its T field (RFC 7143 11.12.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsidFormat {
    /// 00b: an IEEE OUI and a 24-bit qualifier.
    Oui,
    /// 01b: an IANA enterprise number and a 16-bit qualifier.
    EnterpriseNumber,
    /// 10b: a 24-bit random number and a 16-bit qualifier.
    Random,
    /// 11b: reserved. Such an ISID still identifies a port: a target compares ISIDs and does not interpret
    /// them.
    Reserved,
}

/// Initiator part of the session identifier (RFC 7143 11.12.5): six bytes, `T A | B B | C | D D`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isid(pub [u8; 6]);

impl Isid {
    /// The random form. The caller must store `number` permanently, because the ISID of an initiator port
    /// should survive restarts.
    //= rfc7143 11.12.5 NAM-03
    pub const fn random(number: [u8; 3], qualifier: u16) -> Self {
        let [d0, d1] = qualifier.to_be_bytes();
        Isid([0x80, number[0], number[1], number[2], d0, d1])
    }

    /// The enterprise-number form; `None` above 24 bits, which the form cannot carry.
    //= rfc7143 11.12.5 NAM-03
    pub const fn enterprise(number: u32, qualifier: u16) -> Option<Self> {
        let [high, b0, b1, c] = number.to_be_bytes();
        let [d0, d1] = qualifier.to_be_bytes();
        if high == 0 { Some(Isid([0x40, b0, b1, c, d0, d1])) } else { None }
    }

    /// The OUI form: the lower 22 bits of `oui` (its two flag bits are not sent) and a 24-bit qualifier.
    //= rfc7143 11.12.5 NAM-03
    pub const fn oui(oui: [u8; 3], qualifier: [u8; 3]) -> Self {
        Isid([oui[0] & 0x3f, oui[1], oui[2], qualifier[0], qualifier[1], qualifier[2]])
    }

    /// The T field.
    //= rfc7143 11.12.5 NAM-03
    pub const fn format(self) -> IsidFormat {
        match self.0[0] >> 6 {
            0 => IsidFormat::Oui,
            1 => IsidFormat::EnterpriseNumber,
            2 => IsidFormat::Random,
            _ => IsidFormat::Reserved,
        }
    }
}

/// As `0x` and twelve digits, the form used in iSCSI port names (RFC 7143 4.2.7.1).
impl fmt::Display for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isid({self})")
    }
}
