//! Row-major arithmetic: which boxes a range of elements is, and which runs of a part go where.

use trainyard_core::checkpoint::Region;

/// Elements that are contiguous in a part and in the wanted region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first element in the part.
    pub(super) from: u64,
    /// The first element in the region.
    pub(super) to: u64,
    /// How many.
    pub(super) length: u64,
}

/// The step of each dimension, in elements.
pub(super) fn row_major(sizes: &[u64]) -> Vec<u64> {
    let mut steps = vec![1; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        steps[dim - 1] = sizes[dim].max(1).saturating_mul(steps[dim]);
    }
    steps
}

/// The boxes that elements `from` to `to` of a tensor are, in their order. Each is contiguous in the tensor.
pub(super) fn regions(shape: &[u64], from: u64, to: u64) -> Vec<Region> {
    let mut found = Vec::new();
    if from < to {
        let steps = row_major(shape);
        cut(shape, &steps, &mut Vec::new(), from, to, &mut found);
    }
    found
}

/// Elements `from` to `to` of what is left when the first indices are fixed.
fn cut(
    shape: &[u64],
    steps: &[u64],
    fixed: &mut Vec<u64>,
    from: u64,
    to: u64,
    found: &mut Vec<Region>,
) {
    let dim = fixed.len();
    let mut region = Region::whole(shape);
    for (place, index) in fixed.iter().enumerate() {
        region.offsets[place] = *index;
        region.sizes[place] = 1;
    }
    if dim == shape.len() {
        found.push(region);
        return;
    }
    let step = steps[dim];
    let (first, last) = (from.div_ceil(step), to / step);
    if first <= last {
        if from < first * step {
            fixed.push(first - 1);
            cut(shape, steps, fixed, from - (first - 1) * step, step, found);
            fixed.pop();
        }
        if first < last {
            region.offsets[dim] = first;
            region.sizes[dim] = last - first;
            found.push(region);
        }
        if last * step < to {
            fixed.push(last);
            cut(shape, steps, fixed, 0, to - last * step, found);
            fixed.pop();
        }
    } else {
        // Inside of one row.
        fixed.push(last);
        cut(
            shape,
            steps,
            fixed,
            from - last * step,
            to - last * step,
            found,
        );
        fixed.pop();
    }
}

/// The first and the last element of `both` in a part with these steps.
pub(super) fn span(both: &Region, part: &Region, steps: &[u64]) -> (u64, u64) {
    let (mut first, mut last) = (0_u64, 0_u64);
    for (dim, step) in steps.iter().enumerate() {
        let start = (both.offsets[dim] - part.offsets[dim]).saturating_mul(*step);
        let more = both.sizes[dim].saturating_sub(1).saturating_mul(*step);
        first = first.saturating_add(start);
        last = last.saturating_add(start).saturating_add(more);
    }
    (first, last)
}

/// The runs of `both`, which is in the part and in the region.
pub(super) fn runs<'a>(
    both: &'a Region,
    part: &'a Region,
    steps: &'a [u64],
    region: &'a Region,
) -> impl Iterator<Item = Run> + 'a {
    let dims = both.sizes.len();
    let target = row_major(&region.sizes);
    // Trailing dimensions that are contiguous on both sides make one run.
    let mut outer = dims;
    let mut length: u64 = 1;
    while outer > 0 {
        let dim = outer - 1;
        let joins = both.sizes[dim] == 1 || (steps[dim] == length && target[dim] == length);
        if !joins {
            break;
        }
        length = length.saturating_mul(both.sizes[dim]);
        outer = dim;
    }
    let count: u64 = both.sizes[..outer].iter().product();
    (0..count).map(move |turn| {
        let (mut left, mut from, mut to) = (turn, 0, 0);
        for dim in (0..dims).rev() {
            let index = if dim < outer {
                let index = left % both.sizes[dim];
                left /= both.sizes[dim];
                index
            } else {
                0
            };
            from += (both.offsets[dim] - part.offsets[dim] + index) * steps[dim];
            to += (both.offsets[dim] - region.offsets[dim] + index) * target[dim];
        }
        Run { from, to, length }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every range of some shapes, put together from boxes and from parts, is what a dense array has.
    #[test]
    fn ranges_are_whole() {
        for shape in [vec![], vec![7], vec![3, 4], vec![2, 3, 4], vec![1, 5, 1, 2]] {
            let count: u64 = shape.iter().product();
            for from in 0..=count {
                for to in from..=count {
                    let steps = row_major(&shape);
                    let whole = Region::whole(&shape);
                    let mut elements = Vec::new();
                    for region in regions(&shape, from, to) {
                        let parts = runs(&region, &whole, &steps, &region);
                        for run in parts {
                            elements.extend(run.from..run.from + run.length);
                        }
                    }
                    assert_eq!(elements, (from..to).collect::<Vec<_>>(), "{shape:?}");
                }
            }
        }
    }

    #[test]
    fn transposed_part() {
        // A 3 x 2 tensor stored with steps 1 and 3.
        let whole = Region::whole(&[3, 2]);
        let found: Vec<u64> = runs(&whole, &whole, &[1, 3], &whole)
            .map(|run| run.from)
            .collect();
        assert_eq!(found, [0, 3, 1, 4, 2, 5]);
        assert_eq!(span(&whole, &whole, &[1, 3]), (0, 5));
    }
}
