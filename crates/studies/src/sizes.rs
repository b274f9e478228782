//! Sizes of buffers that people ask for.

use harness::Failure;

/// Largest buffer of a sample, so that a wrong unit does not fill the memory.
const MAX_SAMPLE_BYTES: usize = 64 << 20;

/// The sizes asked for in `arguments`, ascending, if there are any; each is a multiple of `unit` bytes.
///
/// # Errors
/// When one is no such size; the text says which sizes there are.
pub(crate) fn sizes(arguments: &[u64], unit: usize) -> Result<Option<Vec<usize>>, Failure> {
    let size = |&bytes: &u64| {
        let bytes = usize::try_from(bytes).ok()?;
        ((unit..=MAX_SAMPLE_BYTES).contains(&bytes) && bytes.is_multiple_of(unit)).then_some(bytes)
    };
    let Some(mut sizes) = arguments.iter().map(size).collect::<Option<Vec<usize>>>() else {
        let multiples = if unit == 1 { String::new() } else { format!(", in multiples of {unit}") };
        let what = format!("sizes are from {unit} to {MAX_SAMPLE_BYTES} bytes{multiples}");
        return Err(Failure::Misused(what));
    };
    sizes.sort_unstable();
    sizes.dedup();
    Ok((!sizes.is_empty()).then_some(sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_put_in_order_and_those_that_cannot_be_are_refused() {
        assert_eq!(sizes(&[4096, 1, 4096], 1).unwrap(), Some(vec![1, 4096]));
        assert_eq!(sizes(&[], 512).unwrap(), None);
        assert_eq!(sizes(&[1024, 512], 512).unwrap(), Some(vec![512, 1024]));
        for wrong in [0, 513, 1 << 40, u64::MAX] {
            assert!(sizes(&[512, wrong], 512).is_err(), "{wrong}");
        }
    }
}
