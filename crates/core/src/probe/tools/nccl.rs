//! `all_reduce_perf` of nccl-tests: how it is called for the GPUs of one pod, and what it prints.

use serde::{Deserialize, Serialize};

use super::{Ending, ProgramError, Ran};

/// The program.
pub const PROGRAM: &str = "all_reduce_perf";
/// What to install to have it.
pub const PACKAGE: &str = "nccl-tests";

/// What an all-reduce of the GPUs of one pod reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reduced {
    /// Gigabytes in a second that each link between GPUs carried.
    pub bus_gigabytes: f64,
    /// Values that were not what they must be.
    pub wrong: u64,
}

/// The words for `gpus` of one process: one size that fills any link, few times, with every sum checked once.
pub fn words(gpus: u32) -> Vec<String> {
    let gpus = gpus.to_string();
    let words = [
        "-b", "256M", "-e", "256M", "-g", &gpus, "-n", "10", "-w", "2", "-c", "1",
    ];
    words.map(str::to_owned).to_vec()
}

/// What it reached, from its last lines, or from its table where those are missing. The error is why there is nothing.
///
/// Its exit code is ignored where it printed a number: wrong values make it fail, too.
pub fn read(ran: &Ran) -> Result<Reduced, ProgramError> {
    let table = table(&ran.output);
    let average = footer(&ran.output, "Avg bus bandwidth").and_then(|cell| cell.parse().ok());
    let bounds = footer(&ran.output, "Out of bounds values").and_then(|cell| cell.parse().ok());
    let bandwidth = average.or(table.map(|table| table.bus_gigabytes));
    let wrong = bounds
        .unwrap_or(0)
        .max(table.map_or(0, |table| table.wrong));
    let ended = matches!(ran.ending, Ending::Exited(_));
    match bandwidth.filter(|rate: &f64| rate.is_finite() && ended) {
        Some(bus_gigabytes) => Ok(Reduced {
            bus_gigabytes,
            wrong,
        }),
        None => Err(ran.error(PROGRAM)),
    }
}

/// The first cell behind the colon of a line such as `# Out of bounds values : 0 OK`.
fn footer<'a>(output: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = output.lines().filter_map(|line| line.strip_prefix('#'));
    let line = lines.find_map(|line| line.trim_start().strip_prefix(name))?;
    line.split_once(':')?.1.split_whitespace().next()
}

/// The mean of the rates in the table, and all of its wrong values.
fn table(output: &str) -> Option<Reduced> {
    let mut lines = output.lines();
    let names: Vec<&str> = lines.by_ref().find_map(|line| {
        let names: Vec<&str> = line.strip_prefix('#')?.split_whitespace().collect();
        names.contains(&"busbw").then_some(names)
    })?;
    let mut rates = Vec::new();
    let mut wrong = 0_u64;
    for line in lines.filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let is_row = cells
            .first()
            .is_some_and(|cell| cell.parse::<u64>().is_ok());
        if !is_row || cells.len() < names.len() {
            continue;
        }
        for (name, cell) in names.iter().zip(cells) {
            match (*name, cell.parse::<f64>()) {
                ("busbw", Ok(rate)) => rates.push(rate),
                // Written without a fraction, or in powers of ten where there are many.
                ("#wrong", Ok(count)) if count > 0.0 => wrong = wrong.saturating_add(whole(count)),
                _ => {}
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a few rows")]
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    (!rates.is_empty()).then_some(Reduced {
        bus_gigabytes: mean,
        wrong,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count that is positive, and need not be exact beyond the bound"
)]
fn whole(count: f64) -> u64 {
    count.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# nThread 1 nGpus 8 minBytes 268435456 maxBytes 268435456 step: 1048576(bytes) warmup iters: 2 \
        iters: 10 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n\
        #  Rank  0 Group  0 Pid   4711 on      gpu-0 device  0 [0x18] NVIDIA H100 80GB HBM3\n#\n";
    const NAMES: &str = "#                                                              out-of-place                       in-place\n\
        #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";
    const OLD_NAMES: &str = "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n";

    fn ran(code: i32, output: &str) -> Ran {
        Ran {
            ending: Ending::Exited(Some(code)),
            output: output.to_owned(),
            errors: String::new(),
        }
    }

    #[test]
    fn rates_and_wrong_values_are_read_by_name() {
        let row = "   268435456      67108864     float     sum      -1    980.1  273.89  479.31      0    978.4  274.36  480.13      0\n";
        let bad = "   268435456      67108864     float     sum      -1    980.1  273.89  479.31  3e+06    978.4  274.36  480.13    N/A\n";
        let old = "   268435456      67108864   float     sum    980.1  273.89  479.31  2e-07    978.4  274.36  480.13  2e-07\n";
        let foot = |wrong: &str, rate: &str| {
            format!("# Out of bounds values : {wrong}\n# Avg bus bandwidth    : {rate}\n#\n")
        };
        let cases = [
            (
                "well",
                ran(0, &format!("{HEAD}{NAMES}{row}{}", foot("0 OK", "479.72"))),
                479.72,
                0,
            ),
            (
                "wrong values, in the footer and with an exit code",
                ran(
                    4,
                    &format!("{HEAD}{NAMES}{row}{}", foot("12 FAILED", "479.72")),
                ),
                479.72,
                12,
            ),
            (
                "wrong values, in the table alone",
                ran(1, &format!("{HEAD}{NAMES}{bad}")),
                479.72,
                3_000_000,
            ),
            (
                "an older table, whose last columns are deviations",
                ran(
                    0,
                    &format!("{HEAD}{OLD_NAMES}{old}{}", foot("0 OK", "479.7")),
                ),
                479.7,
                0,
            ),
            ("a footer alone", ran(0, &foot("0 OK", "12.5")), 12.5, 0),
        ];
        for (name, ran, rate, wrong) in cases {
            let got = read(&ran).unwrap();
            assert!((got.bus_gigabytes - rate).abs() < 1e-6, "{name}: {got:?}");
            assert_eq!(got.wrong, wrong, "{name}");
        }
    }

    /// As nccl-tests 2.19.6 with NCCL 2.28.3 printed it on a machine with one H200, whose links carry nothing.
    const ONE_H200: &str = "\
# nccl-tests version 2.19.6 nccl-headers=22803 nccl-library=22803
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 268435456 maxBytes 268435456 step: 1048576(bytes) warmup iters: 2 iters: 5 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid   1357 on         vm device  0 [0000:00:06] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
   268435456      67108864     float     sum      -1   131.61  2039.7    0.00       0     0.82  327121    0.00       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0
#
# Collective test concluded: all_reduce_perf
#
";

    #[test]
    fn real_gpu_output_is_read() {
        let reduced = Reduced {
            bus_gigabytes: 0.0,
            wrong: 0,
        };
        assert_eq!(read(&ran(0, ONE_H200)), Ok(reduced));
        let without_footer = ONE_H200.split("# Out of").next().unwrap();
        assert_eq!(read(&ran(0, without_footer)), Ok(reduced));
        let bad = ONE_H200.replace("0.00       0 ", "0.00       7 ");
        assert_eq!(read(&ran(1, &bad)).unwrap().wrong, 7);
        // Asked for two GPUs there, and for one that was not visible.
        for (said, expected) in [
            (
                "# Using devices\nInvalid number of GPUs: 2 requested but only 1 were found.\n\
                 Please check the number of processes and GPUs per process.\n .. vm pid 1372: Test failure common.cu:1454\n",
                "Invalid number of GPUs: 2 requested but only 1 were found.",
            ),
            (
                "# Using devices\nvm: Test CUDA failure util.cu:674 'no CUDA-capable device is detected'\n\
                 .. vm pid 1378: Test failure common.cu:1454\n",
                "vm: Test CUDA failure util.cu:674 'no CUDA-capable device is detected'",
            ),
        ] {
            let why = read(&ran(1, said)).unwrap_err().to_string();
            assert!(why.ends_with(expected), "{why}");
        }
    }

    #[test]
    fn missing_number_gives_a_reason() {
        let cases = [
            (
                "gpu-0: Test CUDA failure common.cu:1113 'no CUDA-capable device is detected'\n .. gpu-0 pid 9: Test failure common.cu:1080\n",
                "`all_reduce_perf` ended with exit code 2: gpu-0: Test CUDA failure common.cu:1113 \
                 'no CUDA-capable device is detected'",
            ),
            (HEAD, "`all_reduce_perf` ended with exit code 2"),
            (
                "# Avg bus bandwidth    : nan\n",
                "`all_reduce_perf` ended with exit code 2",
            ),
        ];
        for (output, want) in cases {
            assert_eq!(read(&ran(2, output)).unwrap_err().to_string(), want);
        }
        let hung = Ran {
            ending: Ending::Hung(40_000),
            ..ran(0, NAMES)
        };
        assert_eq!(
            read(&hung).unwrap_err().to_string(),
            "`all_reduce_perf` did not end within 40 s"
        );
    }

    #[test]
    fn it_is_called_for_all_gpus_of_one_process() {
        assert_eq!(words(8).join(" "), "-b 256M -e 256M -g 8 -n 10 -w 2 -c 1");
    }
}
