use proptest::prelude::*;

use super::*;

/// The figures of a bucket, computed from all points, which are in order.
fn direct(
    points: &[(i64, f64)],
    from: i64,
    to: i64,
) -> (Option<f64>, Option<f64>, Option<f64>, u64, u64) {
    let inside = between(points, from, to);
    let finite = inside.iter().filter(|(_, value)| value.is_finite());
    let values = || finite.clone().map(|(_, value)| *value);
    let count = |count: usize| u64::try_from(count).unwrap();
    (
        values().reduce(f64::min),
        values().reduce(f64::max),
        values().next_back(),
        count(values().count()),
        count(inside.len() - values().count()),
    )
}

fn between(points: &[(i64, f64)], from: i64, to: i64) -> &[(i64, f64)] {
    let place = |time: i64| points.partition_point(|(at, _)| *at < time);
    &points[place(from)..place(to).max(place(from))]
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        20 => (-1_000_i32..1_000).prop_map(f64::from),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
    ]
}

/// Points at random, and so many more at equal distances that finer levels drop some.
fn points() -> impl Strategy<Value = Vec<(i64, f64)>> {
    let random = prop::collection::vec((-50_000_000_i64..50_000_000, value()), 0..400);
    let regular = (-50_000_000_i64..0, 4_000_i64..16_000, 0_i64..7_000);
    let regular = prop_oneof![1 => Just(None), 1 => regular.prop_map(Some)];
    (random, regular, any::<bool>()).prop_map(|(mut points, regular, late)| {
        let regular = regular.into_iter().flat_map(|(start, step, count)| {
            (0..count).map(move |turn| {
                let value = f64::from(i32::try_from(turn % 100).unwrap());
                (start + turn * step, value)
            })
        });
        points.extend(regular);
        // Random ones come first, or last and then many of them too late.
        if late {
            points.reverse();
        }
        points
    })
}

proptest! {
    /// Every bucket of every answer is what the points themselves give, in whatever order they came, and no answer lacks a point that any level has.
    #[test]
    fn pyramid_is_the_direct_computation(
        points in points(),
        from in -60_000_000_i64..60_000_000,
        length in 1_i64..120_000_000,
        most in 1_usize..300,
    ) {
        let mut pyramid = Pyramid::default();
        for (at, value) in &points {
            pyramid.push(*at, *value);
        }
        prop_assert!(points.len() > POINTS_MAX || pyramid.too_late() == 0);
        let mut points = points;
        points.sort_by_key(|(at, _)| *at);
        let to = from + length;
        let series = pyramid.series(from, to, most);
        prop_assert!(series.buckets.len() <= most);
        let mut counted = 0;
        for bucket in &series.buckets {
            // The points themselves, or all of them in one bucket: of neither does the length say which level it is made of.
            if series.bucket_millis == 0 || series.bucket_millis == i64::MAX {
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
            let sum: f64 = between(&points, begin, end.min(cut)).iter().map(|(_, value)| value).filter(|value| value.is_finite()).sum();
            prop_assert!((bucket.sum - sum).abs() < 1e-6);
            counted += bucket.n + bucket.not_finite;
        }
        let inside = between(&points, from, to).len();
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

#[test]
fn one_bucket_takes_points_before_and_after_time_zero() {
    let mut pyramid = Pyramid::default();
    for at in [i64::MIN, -20_000_000, -1, 0, 20_000_000, i64::MAX - 1] {
        pyramid.push(at, 1.0);
    }
    for (from, to, want) in [(i64::MIN, i64::MAX, 6), (-30_000_000, 30_000_000, 4)] {
        let series = pyramid.series(from, to, 1);
        let counts: Vec<u64> = series.buckets.iter().map(|bucket| bucket.n).collect();
        assert_eq!((counts, series.bucket_millis), (vec![want], i64::MAX));
    }
}

#[test]
fn coarser_level_answers_for_a_dropped_bucket() {
    let minute = 60_000;
    let mut pyramid = Pyramid::default();
    let count = i64::try_from(BUCKETS_MAX).unwrap() + 1;
    for turn in 0..count {
        pyramid.push(turn * minute + 40_000, 1.0);
    }
    // The level of minutes has dropped the first one, which begins before the window; its point is in it.
    let series = pyramid.series(30_000, count * minute, ANSWER_MAX);
    let counted: u64 = series.buckets.iter().map(|bucket| bucket.n).sum();
    let want = u64::try_from(count).unwrap();
    assert_eq!((series.bucket_millis, counted), (900_000, want));
    // The same of the level that has it as its finest answer.
    let first = pyramid.series(30_000, minute, 10);
    assert_eq!((first.bucket_millis, first.buckets[0].n), (900_000, 15));
}
