//! Numbers that change while a job runs, and numbers that must divide each other.

use super::{
    super::{
        Rule,
        advice::{Advice, Look, ODD, RISKY, WRONG, rule},
        scene::{Pod, Scene, counted},
    },
    world,
};

/// The rules of elastic jobs, of variables and of parallel sizes.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY166",
            RISKY,
            "fixed number of nodes in an elastic job",
            "`elasticPolicy` lets the number of workers change between its bounds, and a single number after `--nnodes` forbids \
             it: torchrun waits for exactly that many, so a worker less stops the training and a worker more is turned away. \
             Without the option torchrun takes the bounds from PET_NNODES, which every pod is given.",
        ),
        look: Look::Job(fixed_nodes),
    },
    Advice {
        rule: rule(
            "TY167",
            ODD,
            "autoscaling by CPU on GPU workers",
            "The autoscaler adds and removes workers by the use of CPU or memory. In training on GPUs neither says \
             whether more workers help, and every change is a restart of all ranks from the last checkpoint.",
        ),
        look: Look::Job(scaled_by_cpu),
    },
    Advice {
        rule: rule(
            "TY168",
            WRONG,
            "variable set twice",
            "A container has the same variable twice in `env`. The cluster refuses such a job; in a plain Pod the last one wins, and \
             whoever reads the first is wrong.",
        ),
        look: Look::Job(set_twice),
    },
    Advice {
        rule: rule(
            "TY169",
            WRONG,
            "parallel sizes that do not divide the ranks",
            "The ranks of the job must be a multiple of tensor times pipeline times context parallel size; what is left over is \
             the data parallel size. Megatron and others end at their start where it is not a whole number.",
        ),
        look: Look::Job(parallel_sizes),
    },
];

fn fixed_nodes(rule: &Rule, scene: &Scene<'_>) {
    let Some(elastic) = scene.job.elastic() else {
        return;
    };
    let (least, most) = (elastic.min_replicas, elastic.max_replicas);
    for pod in scene.ranks().filter(|_| least < most) {
        let command = pod.command();
        let Some(word) = command
            .torchrun()
            .and_then(|_| command.option(&["--nnodes"]))
        else {
            continue;
        };
        if pod
            .resolved(word.text)
            .is_some_and(|text| text.parse::<u32>().is_ok())
        {
            pod.command_at(word.item).report_with(
                rule,
                format!(
                    "`--nnodes` is {}, `elasticPolicy` allows {least} to {most} workers",
                    word.text
                ),
                format!("leave the option out, or write `--nnodes={least}:{most}`"),
            );
        }
    }
}

fn scaled_by_cpu(rule: &Rule, scene: &Scene<'_>) {
    let on_gpus = scene.pods.iter().any(Pod::asks_for_gpus);
    let Some(elastic) = scene.job.elastic().filter(|_| on_gpus) else {
        return;
    };
    let list = scene.spec().key("elasticPolicy").key("metrics");
    for (index, metric) in elastic.metrics.iter().enumerate() {
        let of_pod = metric.resource.as_ref().map(|found| found.name.as_str());
        let of_container = metric
            .container_resource
            .as_ref()
            .map(|found| found.name.as_str());
        if let Some(name) = of_pod
            .or(of_container)
            .filter(|name| matches!(*name, "cpu" | "memory"))
        {
            list.index(index).report_with(
                rule,
                format!("workers with GPUs are added and removed by the use of `{name}`"),
                "remove `metrics`, or scale by a metric of the training",
            );
        }
    }
}

fn set_twice(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            let mut seen = std::collections::BTreeSet::new();
            for (index, variable) in container.env.iter().flatten().enumerate() {
                if !seen.insert(variable.name.as_str()) {
                    place.key("env").index(index).key("name").report_with(
                        rule,
                        format!("`{}` is set twice, the last value counts", variable.name),
                        "remove one of the two",
                    );
                }
            }
        }
    }
}

fn parallel_sizes(rule: &Rule, scene: &Scene<'_>) {
    const SIZES: [&[&str]; 3] = [
        &["--tensor-model-parallel-size", "--tensor-parallel-size"],
        &["--pipeline-model-parallel-size", "--pipeline-parallel-size"],
        &["--context-parallel-size"],
    ];
    let Some(ranks) = world::total_ranks(scene).filter(|ranks| *ranks > 0) else {
        return;
    };
    for pod in &scene.pods {
        let command = pod.command();
        let sizes = SIZES.iter().filter_map(|names| {
            let word = command.option(names)?;
            Some((word, pod.resolved(word.text)?.parse::<u64>().ok()?))
        });
        let sizes: Vec<_> = sizes.collect();
        let product = sizes
            .iter()
            .fold(1_u64, |product, (_, size)| product.saturating_mul(*size));
        let Some((word, _)) = sizes
            .first()
            .filter(|_| product > 1 && ranks % product != 0)
        else {
            continue;
        };
        pod.command_at(word.item).report_with(
            rule,
            format!(
                "{} cannot be divided by {product}, the product of the parallel sizes",
                counted(ranks, "rank")
            ),
            format!(
                "choose sizes whose product divides {ranks}, or start {} ranks",
                ranks.div_ceil(product).saturating_mul(product)
            ),
        );
    }
}
