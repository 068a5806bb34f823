use super::*;

#[test]
fn dashboard_folding_reads_a_bounded_part_of_logs() {
    let sum = |sizes: &[u64], failed: &dyn Fn(usize) -> bool| -> (u64, u64) {
        let is_failed = (0..sizes.len()).map(failed).collect();
        let rooms = rooms(sizes, is_failed);
        (rooms.iter().sum(), rooms[0])
    };
    // The first of four failed.
    let (all, first) = sum(&[1 << 30; 4], &|at| at == 0);
    assert!(all <= BYTES_MAX && first >= FAILED_BYTES, "{all} {first}");
    // A pod that failed has as many containers as there is room for in a folder.
    let (all, first) = sum(&vec![1 << 30; 10_000], &|_| true);
    assert!(all <= BYTES_MAX && first > 0, "{all} {first}");
    let (all, _) = sum(&vec![u64::MAX; 10_000], &|at| at % 2 == 0);
    assert!(all <= BYTES_MAX, "{all}");
    assert_eq!(sum(&[3, 4], &|_| false), (7, 3));
}

#[test]
fn dashboard_folding_keeps_times_of_what_it_reads() {
    let times: Vec<(u64, i64)> = (0..1_000)
        .map(|at| (at, i64::try_from(at).unwrap()))
        .collect();
    let pieces = VecDeque::from([(500, vec![0; 10]), (700, vec![0; 5])]);
    let kept = times_of(times, &pieces);
    assert_eq!((kept[0], kept.last()), ((500, 500), Some(&(704, 704))));
    let between = vec![(0, 1), (400, 2), (400, 3), (506, 4), (506, 5), (800, 6)];
    let kept = times_of(between, &pieces);
    assert_eq!(kept, [(400, 3), (506, 5)]);
    assert_eq!(written_at(&kept, 500), Some(3));
    assert_eq!(times_of(vec![(1, 1)], &VecDeque::new()), []);
    // What somebody else wrote there takes no more than the log itself.
    let flood = vec![(503, 7); 1_000_000];
    assert_eq!(times_of(flood, &pieces).capacity(), 1);
}
