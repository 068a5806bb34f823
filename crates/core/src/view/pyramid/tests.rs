use proptest::prelude::*;

use super::*;

/// The figures of a bucket, computed from all points.
fn direct(
    points: &[(i64, f64)],
    from: i64,
    to: i64,
) -> (Option<f64>, Option<f64>, Option<f64>, u64, u64) {
    let inside = || points.iter().filter(|(at, _)| (from..to).contains(at));
    let finite: Vec<(i64, f64)> = inside()
        .copied()
        .filter(|(_, value)| value.is_finite())
        .collect();
    let values = || finite.iter().map(|(_, value)| *value);
    let last = finite
        .iter()
        .enumerate()
        .max_by_key(|(order, (at, _))| (*at, *order));
    let count = |count: usize| u64::try_from(count).unwrap();
    (
        values().reduce(f64::min),
        values().reduce(f64::max),
        last.map(|(_, (_, value))| *value),
        count(finite.len()),
        count(inside().count() - finite.len()),
    )
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        20 => (-1_000_i32..1_000).prop_map(f64::from),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
    ]
}

proptest! {
    /// Every bucket of every answer is what the points themselves give, in whatever order they came.
    #[test]
    fn pyramid_is_the_direct_computation(
        points in prop::collection::vec((-50_000_000_i64..50_000_000, value()), 0..400),
        from in -60_000_000_i64..60_000_000,
        length in 1_i64..120_000_000,
        most in 1_usize..300,
    ) {
        let mut pyramid = Pyramid::default();
        for (at, value) in &points {
            pyramid.push(*at, *value);
        }
        prop_assert_eq!(pyramid.too_late(), 0);
        let to = from + length;
        let series = pyramid.series(from, to, most);
        prop_assert!(series.buckets.len() <= most);
        let mut counted = 0;
        for bucket in &series.buckets {
            if series.bucket_millis == 0 {
                counted += bucket.n + bucket.not_finite;
                continue;
            }
            let end = bucket.t + series.bucket_millis;
            // The last bucket holds no finer ones from the end of the window on.
            let finest = LEVELS.iter().rev().find(|level| series.bucket_millis % **level == 0).unwrap();
            let cut = to.div_euclid(*finest) * finest + if to.rem_euclid(*finest) == 0 { 0 } else { *finest };
            let begin = bucket.t.max(from.div_euclid(*finest) * finest);
            let want = direct(&points, begin, end.min(cut));
            let got = (bucket.min, bucket.max, bucket.last, bucket.n, bucket.not_finite);
            prop_assert_eq!(got, want, "{:?}", bucket);
            // Whole numbers add up without an error, in any order.
            let sum: f64 = points.iter().filter(|(at, value)| (begin..end.min(cut)).contains(at) && value.is_finite()).map(|(_, value)| value).sum();
            prop_assert!((bucket.sum - sum).abs() < 1e-6);
            counted += bucket.n + bucket.not_finite;
        }
        let inside = points.iter().filter(|(at, _)| (from..to).contains(at)).count();
        prop_assert!(counted >= u64::try_from(inside).unwrap(), "no point of the window is left out");
    }
}

#[test]
fn levels_are_bounded_and_a_spike_survives() {
    let mut pyramid = Pyramid::default();
    let minute = 60_000;
    let count: i64 = 30 * 24 * 60;
    for turn in 0..count {
        let value = if turn == 1_234 { 900.0 } else { 2.0 };
        pyramid.push(turn * minute, value);
    }
    assert_eq!(pyramid.points.len(), POINTS_MAX);
    assert!(
        pyramid
            .levels
            .iter()
            .all(|level| level.len() <= BUCKETS_MAX)
    );
    let all = pyramid.series(0, count * minute, 500);
    assert!(all.buckets.len() <= 500);
    assert_eq!(
        all.buckets.iter().map(|bucket| bucket.n).sum::<u64>(),
        43_200
    );
    let spike = all
        .buckets
        .iter()
        .filter(|bucket| bucket.max == Some(900.0))
        .count();
    assert_eq!(spike, 1);
    let mean = all.buckets.last().and_then(Bucket::mean);
    assert_eq!(mean, Some(2.0));
    // What comes after its place was dropped is counted where it still has one.
    pyramid.push(0, 7.0);
    assert_eq!(pyramid.too_late(), 1);
    let first = pyramid.series(0, minute, 10);
    assert_eq!(
        (first.bucket_millis, first.buckets[0].last),
        (900_000, Some(2.0))
    );
    assert_eq!(first.buckets[0].max, Some(7.0));
    let newest = pyramid.series((count - 10) * minute, count * minute, 500);
    assert_eq!((newest.bucket_millis, newest.buckets.len()), (0, 10));
}

#[test]
fn numbers_that_are_not_finite_are_counted() {
    let mut pyramid = Pyramid::default();
    for at in 0..30 {
        pyramid.push(at, f64::NAN);
    }
    let series = pyramid.series(0, 30, 5);
    let bucket = series.buckets[0];
    assert_eq!(
        (bucket.n, bucket.not_finite, bucket.min, bucket.mean()),
        (0, 30, None, None)
    );
    let text = serde_json::to_string(&series).unwrap();
    assert_eq!(
        text,
        r#"{"bucketMillis":10000,"buckets":[{"t":0,"min":null,"max":null,"last":null,"n":0,"notFinite":30}],"tooLate":0}"#
    );
    assert_eq!(pyramid.series(i64::MIN, i64::MAX, 0).buckets.len(), 1);
}
