use super::*;

/// Bytes of the chunk that are resident.
fn resident(chunk: &Chunk) -> usize {
    let address = chunk.memory.as_ptr().expose_provenance();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut kib = 0;
    for line in maps.lines() {
        let range = line.split_whitespace().next().unwrap_or("");
        if let Some((from, to)) = range.split_once('-')
            && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
        {
            inside = (from..to).contains(&address);
        } else if inside && let Some(rest) = line.strip_prefix("Rss:") {
            kib += rest.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
        }
    }
    kib * 1024
}

#[test]
fn chunks_are_zero_aligned_and_apart() {
    let arena = Arena::new();
    let mut chunks: Vec<Chunk> = (0..600).map(|_| arena.take().unwrap()).collect();
    for (n, chunk) in chunks.iter_mut().enumerate() {
        assert!(chunk.bytes().iter().all(|byte| *byte == 0));
        assert_eq!(chunk.bytes().as_ptr().addr() % CHUNK_BYTES, 0);
        chunk.bytes_mut().fill(n as u8 | 1);
    }
    assert!(chunks.iter().enumerate().all(|(n, chunk)| chunk.bytes().iter().all(|b| *b == n as u8 | 1)));
}

#[test]
fn who_is_given_what_was_given_back_finds_zeros() {
    for together in [false, true] {
        let arena = Arena::new();
        let mut chunks: Vec<Option<Chunk>> = (0..100).map(|_| arena.take()).collect();
        chunks.iter_mut().flatten().for_each(|chunk| chunk.bytes_mut().fill(0xee));
        // Single chunks, runs of chunks, and a whole group.
        let freed: Vec<usize> = (0..100).filter(|n| n % 3 == 0 || (40..72).contains(n)).collect();
        let gone: Vec<Chunk> = freed.iter().map(|n| chunks[*n].take().unwrap()).collect();
        let places: BTreeSet<_> = gone.iter().map(|chunk| chunk.bytes().as_ptr()).collect();
        match together {
            true => arena.give_back(gone),
            false => drop(gone),
        }
        assert!(chunks.iter().flatten().all(|chunk| chunk.bytes().iter().all(|b| *b == 0xee)));
        let again: Vec<Chunk> = freed.iter().map(|_| arena.take().unwrap()).collect();
        assert_eq!(again.iter().map(|chunk| chunk.bytes().as_ptr()).collect::<BTreeSet<_>>(), places);
        assert!(again.iter().all(|chunk| chunk.bytes().iter().all(|b| *b == 0)));
    }
}

#[test]
fn an_arena_takes_what_was_written_and_gives_it_back() {
    let arena = Arena::new();
    let mut one = arena.take().unwrap();
    let mut other = arena.take().unwrap();
    assert_eq!(resident(&one), 0, "nothing was written");
    one.bytes_mut()[5] = 1;
    other.bytes_mut()[5] = 1;
    assert!((1..=2 * CHUNK_BYTES).contains(&resident(&one)), "{}", resident(&one));
    let with_both = resident(&one);
    drop(other);
    assert!(resident(&one) < with_both);

    let mut many: Vec<Chunk> = (0..GROUP_CHUNKS * 4).map(|_| arena.take().unwrap()).collect();
    many.iter_mut().for_each(|chunk| chunk.bytes_mut().fill(1));
    let last = many.pop().unwrap();
    assert!(resident(&last) >= 3 * GROUP_BYTES, "{}", resident(&last));
    arena.give_back(many);
    // The last chunk's neighbours in the same huge page may stay until the system needs their memory.
    assert!(resident(&last) <= GROUP_BYTES, "{}", resident(&last));
}

#[test]
fn a_region_without_chunks_is_unmapped_and_chunks_outlive_their_arena() {
    let arena = Arena::new();
    let chunks: Vec<Chunk> = (0..GROUPS * GROUP_CHUNKS + 1).map(|_| arena.take().unwrap()).collect();
    assert_eq!(arena.shared.lock().regions.len(), 2);
    assert_eq!(arena.shared.lock().roomy.len(), 1);
    arena.give_back(chunks);
    assert_eq!(arena.shared.lock().regions.len(), 0);
    let mut survivor = arena.take().unwrap();
    let neighbour = arena.take().unwrap();
    let shared = Arc::clone(&arena.shared);
    drop(arena);
    survivor.bytes_mut().fill(7);
    drop(neighbour);
    assert!(survivor.bytes().iter().all(|byte| *byte == 7));
    drop(survivor);
    assert!(shared.lock().regions.is_empty());
}

#[test]
fn chunks_of_another_arena_go_back_to_it() {
    let (arena, other) = (Arena::new(), Arena::new());
    let chunk = other.take().unwrap();
    arena.give_back([chunk]);
    assert!(other.shared.lock().regions.is_empty() && arena.shared.lock().regions.is_empty());
}

#[test]
fn runs_of_ones() {
    assert_eq!(runs(0).collect::<Vec<_>>(), []);
    assert_eq!(runs(Mask::MAX).collect::<Vec<_>>(), [(0, 32)]);
    assert_eq!(
        runs(0b1000_0000_0000_0000_0000_0000_0110_1001).collect::<Vec<_>>(),
        [(0, 1), (3, 1), (5, 2), (31, 1)]
    );
}
