//! How many connections use each export: one whose store hangs must not hold all connections of the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections that may use one export at once. Clients with several connections open 4 to 16.
pub const CONNECTIONS_PER_EXPORT_MAX: usize = 64;

/// The connections of each export, by its name.
#[derive(Debug, Default)]
pub struct Seats {
    taken: Mutex<BTreeMap<String, usize>>,
}

/// The right of one connection to use an export, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    export: String,
}

impl Seats {
    /// A seat at the export that is called `name`; `None` if all are taken.
    pub fn take(self: &Arc<Self>, name: String) -> Option<Seat> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(name.clone()).or_default();
        if *count == CONNECTIONS_PER_EXPORT_MAX {
            return None;
        }
        *count += 1;
        Some(Seat { seats: Arc::clone(self), export: name })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.export) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.export);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_export_has_its_seats_and_gets_them_back() {
        let seats = Arc::<Seats>::default();
        let take = |name: &str| seats.take(name.to_owned());
        let mut all: Vec<_> =
            (0..CONNECTIONS_PER_EXPORT_MAX).map(|_| take("a").expect("there is room")).collect();
        assert!(take("a").is_none() && take("b").is_some());
        all.pop();
        assert!(take("a").is_some());
        drop(all);
        assert!(seats.taken.lock().unwrap().is_empty(), "nothing is remembered of what nobody uses");
    }
}
