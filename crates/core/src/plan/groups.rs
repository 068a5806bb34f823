//! Which ranks belong together, in the order that the frameworks number them.
//!
//! Megatron and torch's `DeviceMesh` number ranks the same way where the mesh is made as torchtitan makes it: tensor
//! varies fastest, then context, then data, then pipeline. Expert groups are cut out of context and
//! data. They differ in how a mesh is written, see [`Order::mesh`].

use serde::Serialize;

use super::layout::Layout;

/// An axis of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Tensor.
    Tp,
    /// Context.
    Cp,
    /// Expert.
    Ep,
    /// Data.
    Dp,
    /// Pipeline.
    Pp,
}

impl Axis {
    /// Every axis, the fastest first.
    pub const ALL: [Self; 5] = [Self::Tp, Self::Cp, Self::Ep, Self::Dp, Self::Pp];

    /// As the annotation and the frameworks write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Cp => "cp",
            Self::Ep => "ep",
            Self::Dp => "dp",
            Self::Pp => "pp",
        }
    }
}

/// The framework whose order is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Megatron's `tp-cp-ep-dp-pp`.
    Megatron,
    /// torch's `DeviceMesh`, outermost first.
    DeviceMesh,
}

impl Order {
    /// How the order is written in the framework.
    pub fn mesh(self, layout: &Layout) -> String {
        let Layout {
            tensor,
            pipeline,
            context,
            data,
            ..
        } = layout;
        match self {
            Self::Megatron => format!(
                "--tensor-model-parallel-size {tensor} --context-parallel-size {context} \
                 --pipeline-model-parallel-size {pipeline} --expert-model-parallel-size {}",
                layout.expert
            ),
            Self::DeviceMesh => format!(
                "init_device_mesh(\"cuda\", ({pipeline}, {data}, {context}, {tensor}), \
                 mesh_dim_names=(\"pp\", \"dp\", \"cp\", \"tp\"))"
            ),
        }
    }
}

/// Size of the axis, and how far apart its ranks are.
fn extent(layout: &Layout, axis: Axis) -> (u32, u32) {
    let inner = layout.tensor * layout.context;
    match axis {
        Axis::Tp => (layout.tensor, 1),
        Axis::Cp => (layout.context, layout.tensor),
        Axis::Ep => (layout.expert, layout.tensor),
        Axis::Dp => (layout.data, inner),
        Axis::Pp => (layout.pipeline, inner * layout.data),
    }
}

/// The groups of one axis: every rank is in exactly one of them, in the order of their first rank.
pub fn groups(layout: &Layout, axis: Axis) -> Vec<Vec<u32>> {
    let (size, stride) = extent(layout, axis);
    let ranks = u32::try_from(layout.ranks()).unwrap_or(u32::MAX);
    let block = size * stride;
    let mut groups = Vec::new();
    for start in (0..ranks).step_by(block.max(1) as usize) {
        for offset in 0..stride {
            groups.push((0..size).map(|at| start + offset + at * stride).collect());
        }
    }
    groups
}

/// The value of `trainyard.dev/parallelism`: the axis that varies fastest first, those of one rank left
/// out. Experts are cut out of data where they divide it.
pub fn annotation(layout: &Layout) -> String {
    let expert = if layout.data.is_multiple_of(layout.expert) {
        layout.expert
    } else {
        1
    };
    let axes = [
        ("tp", layout.tensor),
        ("cp", layout.context),
        ("ep", expert),
        ("dp", layout.data / expert),
        ("pp", layout.pipeline),
    ];
    let stated: Vec<String> = axes
        .into_iter()
        .filter(|(_, size)| *size > 1)
        .map(|(name, size)| format!("{name}={size}"))
        .collect();
    if stated.is_empty() {
        "dp=1".to_owned()
    } else {
        stated.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            tensor: 2,
            context: 2,
            data: 2,
            pipeline: 2,
            expert: 2,
            ..Layout::single()
        }
    }

    /// As `parallel_state.py` of Megatron documents its groups for sixteen ranks.
    #[test]
    fn groups_are_those_of_megatron() {
        let cases: [(Axis, [u32; 2], [u32; 2]); 4] = [
            (Axis::Tp, [0, 1], [14, 15]),
            (Axis::Cp, [0, 2], [13, 15]),
            (Axis::Dp, [0, 4], [11, 15]),
            (Axis::Pp, [0, 8], [7, 15]),
        ];
        for (axis, first, last) in cases {
            let groups = groups(&layout(), axis);
            assert_eq!(groups.first().unwrap(), &first, "{axis:?}");
            assert_eq!(groups.last().unwrap(), &last, "{axis:?}");
        }
    }

    #[test]
    fn every_rank_is_in_one_group_of_each_axis() {
        for axis in Axis::ALL {
            let mut ranks: Vec<u32> = groups(&layout(), axis).concat();
            ranks.sort_unstable();
            assert_eq!(ranks, (0..16).collect::<Vec<u32>>(), "{axis:?}");
        }
    }

    #[test]
    fn the_annotation_makes_up_all_ranks() {
        assert_eq!(annotation(&layout()), "tp=2,cp=2,ep=2,pp=2");
        assert_eq!(annotation(&Layout::single()), "dp=1");
    }
}
