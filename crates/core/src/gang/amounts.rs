//! What is left of every resource on every node, and how many equal pods fit into that.
//!
//! Counting how many pods fit on each node of a large cluster is most of the work of seating a small gang there, and most
//! gangs ask for what another asked for. So counts are kept, and only nodes that have changed are counted again.
//!
//! Invariant: a kept count equals a fresh count.

use std::rc::Rc;

/// Amounts by the place of the resource in [`NodeTable::resources`](super::node_table::NodeTable).
pub(super) type Need = Vec<(usize, i64)>;

/// Counts that are kept: most clusters see fewer kinds of pods at once.
const KEPT: usize = 16;

/// Amounts by node and resource.
#[derive(Debug, Default)]
pub(super) struct Amounts {
    left: Vec<i64>,
    /// How many resources a node has.
    width: usize,
    /// The nodes that have changed, one after the other.
    changed: Vec<u32>,
    counts: Vec<Count>,
}

/// How many pods of one kind fit on each node.
#[derive(Debug)]
struct Count {
    need: Need,
    eligible: Rc<Vec<bool>>,
    fits: Vec<u32>,
    /// How many changes are in it.
    seen: usize,
}

/// Without the counts: the copy is of amounts.
impl Clone for Amounts {
    fn clone(&self) -> Self {
        Self {
            left: self.left.clone(),
            width: self.width,
            ..Self::default()
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.left.clone_from(&source.left);
        self.width = source.width;
        self.changed.clear();
        self.counts.clear();
    }
}

impl Amounts {
    /// `left` holds `width` amounts for each node.
    pub(super) fn new(left: Vec<i64>, width: usize) -> Self {
        Self {
            left,
            width,
            ..Self::default()
        }
    }

    /// How many pods of `need` fit on `node`.
    pub(super) fn fits(&self, node: usize, need: &Need) -> u32 {
        let row = &self.left[node * self.width..];
        let mut least = i64::from(u32::MAX);
        for (at, amount) in need {
            // Most nodes of a full cluster end here, without a division.
            if row[*at] < *amount {
                return 0;
            }
            least = least.min(row[*at] / amount);
        }
        u32::try_from(least).unwrap_or(u32::MAX)
    }

    /// How many pods of `need` fit on each node that is eligible, and none on the others.
    pub(super) fn fits_by_node(&mut self, need: &Need, eligible: &Rc<Vec<bool>>) -> Vec<u32> {
        let known = self
            .counts
            .iter()
            .position(|count| Rc::ptr_eq(&count.eligible, eligible) && count.need == *need);
        let Some(known) = known else {
            let fits = self.count(need, eligible);
            if self.counts.len() == KEPT {
                self.counts.remove(0);
            }
            self.counts.push(Count {
                need: need.clone(),
                eligible: Rc::clone(eligible),
                fits: fits.clone(),
                seen: self.changed.len(),
            });
            return fits;
        };
        // The one that is asked for most stays longest.
        let mut count = self.counts.remove(known);
        for node in &self.changed[count.seen..] {
            let node = *node as usize;
            if eligible[node] {
                count.fits[node] = self.fits(node, need);
            }
        }
        count.seen = self.changed.len();
        let fits = count.fits.clone();
        self.counts.push(count);
        fits
    }

    fn count(&self, need: &Need, eligible: &[bool]) -> Vec<u32> {
        let nodes = eligible.iter().enumerate();
        nodes
            .map(
                |(node, eligible)| {
                    if *eligible { self.fits(node, need) } else { 0 }
                },
            )
            .collect()
    }

    /// Takes the amounts of a pod from `node`.
    pub(super) fn take(&mut self, node: u32, need: &Need) {
        self.change(node, need, -1);
    }

    /// Returns the amounts of a pod to `node`.
    pub(super) fn release(&mut self, node: u32, need: &Need) {
        self.change(node, need, 1);
    }

    fn change(&mut self, node: u32, need: &Need, sign: i64) {
        let row = node as usize * self.width;
        for (at, amount) in need {
            self.left[row + at] += sign * amount;
        }
        if self.counts.is_empty() {
            return;
        }
        // Going through more changes than there are nodes costs more than a fresh count.
        if self.changed.len() * self.width >= self.left.len() {
            self.changed.clear();
            self.counts.clear();
            return;
        }
        self.changed.push(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_counts_equal_fresh_counts() {
        let mut amounts = Amounts::new((0..40).map(|at| at % 9).collect(), 2);
        let eligible: Rc<Vec<bool>> = Rc::new((0..20).map(|node| node % 5 != 0).collect());
        let needs: Vec<Need> = vec![vec![(0, 1)], vec![(0, 2), (1, 1)], vec![]];
        for step in 0..200_u32 {
            let need = &needs[step as usize % 3];
            let node = step * 7 % 20;
            if step % 4 < 2 {
                amounts.take(node, need);
            } else {
                amounts.release((step - 2) * 7 % 20, &needs[(step as usize - 2) % 3]);
            }
            let asked = &needs[step as usize / 3 % 3];
            let fresh = amounts.clone().fits_by_node(asked, &eligible);
            assert_eq!(amounts.fits_by_node(asked, &eligible), fresh, "step {step}");
        }
    }

    #[test]
    fn counts_depend_on_eligible_nodes() {
        let mut amounts = Amounts::new(vec![4, 4], 1);
        let need: Need = vec![(0, 2)];
        let (all, first) = (Rc::new(vec![true, true]), Rc::new(vec![true, false]));
        assert_eq!(amounts.fits_by_node(&need, &all), [2, 2]);
        assert_eq!(amounts.fits_by_node(&need, &first), [2, 0]);
        amounts.take(1, &need);
        assert_eq!(amounts.fits_by_node(&need, &all), [2, 1]);
        amounts.take(1, &need);
        assert_eq!(
            amounts.fits_by_node(&need, &all),
            [2, 0],
            "the same node again"
        );
        assert_eq!(amounts.fits_by_node(&need, &first), [2, 0]);
    }
}
