//! The fields of which records are made.

/// Where one field of a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPlace {
    /// Its name, as in the document.
    pub name: &'static str,
    /// Offset from the beginning of the record, in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// A value with a fixed form in bytes.
pub(super) trait Field: Sized {
    /// Its length in bytes.
    const BYTES: usize;
    /// Reads it at `offset`. A record keeps `offset + BYTES` within its length.
    fn get(record: &[u8], offset: usize) -> Self;
    /// Writes it at `offset`.
    fn put(&self, record: &mut [u8], offset: usize);
}

macro_rules! numbers {
    ($($ty:ty),*) => { $(impl Field for $ty {
        const BYTES: usize = size_of::<$ty>();
        fn get(record: &[u8], offset: usize) -> Self {
            <$ty>::from_le_bytes(std::array::from_fn(|i| record[offset + i]))
        }
        fn put(&self, record: &mut [u8], offset: usize) {
            record[offset..offset + Self::BYTES].copy_from_slice(&self.to_le_bytes());
        }
    })* };
}

numbers!(u8, u16, u32, u64);

impl<const N: usize> Field for [u8; N] {
    const BYTES: usize = N;
    fn get(record: &[u8], offset: usize) -> Self {
        std::array::from_fn(|i| record[offset + i])
    }
    fn put(&self, record: &mut [u8], offset: usize) {
        record[offset..offset + N].copy_from_slice(self);
    }
}

/// A record: a struct, its length, and each field with its offset.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident, $size:expr, $first:expr, {
        $( $(#[$field_doc:meta])* $field:ident: $ty:ty = $offset:literal, )*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $( $(#[$field_doc])* pub $field: $ty, )* }

        impl $name {
            /// Length of the record in bytes.
            pub const BYTES: usize = $size;
            /// Its fields in the order of their offsets.
            pub const FIELDS: &'static [$crate::encoding::FieldPlace] = &[ $( $crate::encoding::FieldPlace {
                name: stringify!($field),
                offset: $offset,
                bytes: <$ty as $crate::encoding::field::Field>::BYTES,
            }, )* ];

            /// Reads a record. The kind in the first byte, where there is one, is for the caller to look at.
            pub fn parse(record: &[u8; $size]) -> Self {
                Self { $( $field: $crate::encoding::field::Field::get(record, $offset), )* }
            }

            /// Writes the record; reserved bytes are zero.
            pub fn emit(&self) -> [u8; $size] {
                let mut record = [0; $size];
                let first: Option<u8> = $first;
                if let Some(kind) = first {
                    record[0] = kind;
                }
                $( $crate::encoding::field::Field::put(&self.$field, &mut record, $offset); )*
                record
            }
        }
    };
}

pub(super) use record;
