//! The tests of the T10 guard and of the pass with copy and CRC32C, all through the public interface.

mod differential;
mod passes;
mod support;
mod vectors;
