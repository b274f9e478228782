//! The contents of buffers.

/// Bytes of xorshift64*: the same in every run.
pub fn random(bytes: usize, state: &mut u64) -> Vec<u8> {
    let mut content = vec![0; bytes];
    for chunk in content.chunks_mut(8) {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    content
}
