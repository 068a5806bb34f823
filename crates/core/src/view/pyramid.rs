//! Numbers over time in bounded memory, so that a spike survives every zoom.
//!
//! The newest points are kept one by one. All points are also in buckets of 10 s, 1 min, 15 min and 4 h with their least, greatest, last, sum and number;
//! each level keeps its newest buckets. A question is answered from the finest level that reaches back far enough, in as many buckets as are asked for.
//!
//! Invariant: a bucket has exactly the figures of the points in it. Numbers that are NaN or infinite are counted and never averaged.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde::Serialize;

/// Points that are kept one by one.
pub const POINTS_MAX: usize = 4_096;
/// Buckets of each level.
pub const BUCKETS_MAX: usize = 4_096;
/// The lengths of the buckets, in milliseconds.
pub const LEVELS: [i64; 4] = [10_000, 60_000, 900_000, 14_400_000];
/// Most buckets of an answer.
pub const ANSWER_MAX: usize = 2_000;

/// One number over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pyramid {
    points: VecDeque<Bucket>,
    levels: [VecDeque<Bucket>; 4],
    /// The newest time that a full level has dropped, by level; the points come first.
    dropped: [Option<i64>; 5],
    too_late: u64,
}

/// The figures of the points in a piece of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bucket {
    /// When it begins, in Unix milliseconds.
    pub t: i64,
    /// The least number; nothing where none is finite.
    pub min: Option<f64>,
    /// The greatest.
    pub max: Option<f64>,
    /// The last finite one.
    pub last: Option<f64>,
    /// How many finite ones.
    pub n: u64,
    /// How many that are NaN or infinite.
    pub not_finite: u64,
    #[serde(skip)]
    sum: f64,
    #[serde(skip)]
    last_at: i64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// How long a bucket is; 0 where each is one point.
    pub bucket_millis: i64,
    /// The buckets that hold points, in order.
    pub buckets: Vec<Bucket>,
    /// How many points came too late to be counted at every level.
    pub too_late: u64,
}

impl Bucket {
    fn of_point(at: i64, value: f64) -> Self {
        let finite = value.is_finite();
        let value = Some(value).filter(|_| finite);
        Self {
            t: at,
            min: value,
            max: value,
            last: value,
            n: u64::from(finite),
            not_finite: u64::from(!finite),
            sum: value.unwrap_or(0.0),
            last_at: at,
        }
    }

    /// The mean of the finite numbers.
    pub fn mean(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "nobody reports 2^53 numbers")]
        (self.n > 0).then(|| self.sum / self.n as f64)
    }

    /// Adds what came at the same time or later.
    fn absorb(&mut self, other: &Self) {
        let least =
            |one: Option<f64>, other: Option<f64>, pick: fn(f64, f64) -> f64| match (one, other) {
                (Some(one), Some(other)) => Some(pick(one, other)),
                (one, other) => one.or(other),
            };
        self.min = least(self.min, other.min, f64::min);
        self.max = least(self.max, other.max, f64::max);
        if other.n > 0 && (self.n == 0 || other.last_at >= self.last_at) {
            (self.last, self.last_at) = (other.last, other.last_at);
        }
        self.sum += other.sum;
        self.n = self.n.saturating_add(other.n);
        self.not_finite = self.not_finite.saturating_add(other.not_finite);
    }
}

impl Pyramid {
    /// Adds a point. Points may come late: they are put in their place as long as that is kept.
    pub fn push(&mut self, at: i64, value: f64) {
        let point = Bucket::of_point(at, value);
        let mut late = self.add(0, point, false);
        for (level, length) in (1..).zip(LEVELS) {
            let begin = at.div_euclid(length).saturating_mul(length);
            late |= self.add(level, Bucket { t: begin, ..point }, true);
        }
        self.too_late += u64::from(late);
    }

    /// How many points came too late to be counted at every level.
    pub fn too_late(&self) -> u64 {
        self.too_late
    }

    fn level(&mut self, level: usize) -> &mut VecDeque<Bucket> {
        match level.checked_sub(1) {
            None => &mut self.points,
            Some(level) => &mut self.levels[level],
        }
    }

    /// Adds to one level; says whether it was too late for it.
    fn add(&mut self, level: usize, bucket: Bucket, joins: bool) -> bool {
        if self.dropped[level].is_some_and(|dropped| bucket.t <= dropped) {
            return true;
        }
        let most = if level == 0 { POINTS_MAX } else { BUCKETS_MAX };
        let all = self.level(level);
        let place = all.partition_point(|known| known.t <= bucket.t);
        let same = place.checked_sub(1).and_then(|before| all.get_mut(before));
        match same.filter(|known| joins && known.t == bucket.t) {
            Some(known) => known.absorb(&bucket),
            None => all.insert(place, bucket),
        }
        if all.len() > most
            && let Some(oldest) = all.pop_front()
        {
            self.dropped[level] = Some(oldest.t);
        }
        false
    }

    /// The points from `from` to `to` (not included), in at most `points` buckets, and at most [`ANSWER_MAX`].
    ///
    /// Where buckets are longer than a point, the first may begin before `from`: it is whole.
    pub fn series(&self, from: i64, to: i64, points: usize) -> Series {
        let most = points.clamp(1, ANSWER_MAX);
        let too_late = self.too_late;
        let is_whole = |level: usize| self.dropped[level].is_none_or(|dropped| dropped < from);
        let inside = |bucket: &&Bucket| bucket.t < to;
        if is_whole(0) {
            let first = self.points.partition_point(|point| point.t < from);
            let found: Vec<Bucket> = self
                .points
                .iter()
                .skip(first)
                .take_while(inside)
                .copied()
                .collect();
            if found.len() <= most {
                return Series {
                    bucket_millis: 0,
                    buckets: found,
                    too_late,
                };
            }
        }
        let levels = (1..).zip(LEVELS).zip(&self.levels);
        let mut answer = Series {
            bucket_millis: 0,
            buckets: Vec::new(),
            too_late,
        };
        for ((level, length), buckets) in levels {
            let begin = from.div_euclid(length).saturating_mul(length);
            let first = buckets.partition_point(|bucket| bucket.t < begin);
            let found: Vec<Bucket> = buckets
                .iter()
                .skip(first)
                .take_while(inside)
                .copied()
                .collect();
            let is_last = level == LEVELS.len();
            let fits = found.len() <= most;
            answer = Series {
                bucket_millis: length,
                buckets: found,
                too_late,
            };
            if (is_whole(level) && fits) || is_last {
                break;
            }
        }
        widen(&mut answer, most);
        answer
    }
}

/// Joins buckets until there are at most `most`.
fn widen(series: &mut Series, most: usize) {
    while series.buckets.len() > most {
        series.bucket_millis = series.bucket_millis.saturating_mul(2);
        let length = series.bucket_millis.max(1);
        let mut wide: Vec<Bucket> = Vec::with_capacity(most);
        for bucket in &series.buckets {
            let t = bucket.t.div_euclid(length).saturating_mul(length);
            match wide.last_mut().filter(|last| last.t == t) {
                Some(last) => last.absorb(bucket),
                None => wide.push(Bucket { t, ..*bucket }),
            }
        }
        series.buckets = wide;
    }
}
