//! The receiving side of TCP as the circuit of an engine has it.

use std::collections::VecDeque;

/// Which bytes of the stream the circuit has, and those that it may have to be given again.
#[derive(Default)]
pub struct Feed {
    /// Bytes of the stream that were taken from the caller.
    position: u64,
    /// The last of them.
    recent: VecDeque<u8>,
    /// Bytes that are to be given again, before those of the caller.
    again: VecDeque<u8>,
    /// Bytes that RESYNC leaves out.
    skip: u64,
    /// The stop has been seen.
    stopped: bool,
}

impl Feed {
    /// More than the circuit can hold: its Rx buffer, and what the packet controller accepts behind a stop.
    const RECENT: usize = 4 * 65536;

    /// Up to here the circuit has the stream.
    pub fn had(&self) -> u64 {
        self.position - self.again.len() as u64
    }

    /// Nothing is given to the circuit until RESYNC.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// How many of the caller's next `length` bytes RESYNC leaves out. They count as taken from here on.
    pub fn skip(&mut self, length: usize) -> usize {
        let skipped = self.skip.min(length as u64);
        self.skip -= skipped;
        self.position += skipped;
        skipped as usize
    }

    /// What is to be given again, before bytes of the caller.
    pub fn again(&mut self) -> &[u8] {
        self.again.make_contiguous()
    }

    /// The circuit has accepted so many of [`Feed::again`].
    pub fn accepted_again(&mut self, count: usize) {
        let again: Vec<u8> = self.again.drain(..count).collect();
        self.remember(&again);
    }

    /// The circuit has accepted bytes of the caller.
    pub fn accepted(&mut self, bytes: &[u8]) {
        self.position += bytes.len() as u64;
        self.remember(bytes);
    }

    fn remember(&mut self, bytes: &[u8]) {
        self.recent.extend(bytes);
        let surplus = self.recent.len().saturating_sub(Self::RECENT);
        self.recent.drain(..surplus);
    }

    /// The circuit has stopped and counts the bytes before `taken` only. Returns how many of the last `of_call` go back to the caller.
    pub fn stop(&mut self, taken: u64, of_call: usize) -> usize {
        let beyond = self.had().saturating_sub(taken) as usize;
        let unread = self.recent.split_off(self.recent.len() - beyond);
        let back = beyond.min(of_call);
        for byte in unread.iter().take(beyond - back).rev() {
            self.again.push_front(*byte);
        }
        self.position -= back as u64;
        self.stopped = true;
        back
    }

    /// RESYNC: the next PDU begins at `position`, and `taken` bytes count so far.
    pub fn restart(&mut self, position: u64, taken: u64) {
        let skip = position.saturating_sub(taken);
        let known = skip.min(self.again.len() as u64);
        self.again.drain(..known as usize);
        (self.skip, self.stopped) = (skip - known, false);
        self.recent.clear();
    }
}
