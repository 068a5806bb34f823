//! Common mistakes, each with a log as the programs write it.

use super::*;

fn first(log: &str) -> Report {
    let mut doctor = doctor();
    let id = doctor.source("train.log");
    doctor.bytes(id, log.as_bytes());
    doctor.finish()
}

#[test]
fn known_traps_have_their_own_cause() {
    let cases = [
        (
            "a gated model",
            "Traceback (most recent call last):\n  File \"/app/train.py\", line 3, in main\n    \
             model = load(name)\nhuggingface_hub.errors.GatedRepoError: 403 Client Error.\n\
             Cannot access gated repo for url https://hub.test/org/model/resolve/main/config.json.\n",
            "access_denied",
        ),
        (
            "no token",
            "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://hub.test/api/models\n",
            "access_denied",
        ),
        (
            "too many open files",
            "OSError: [Errno 24] Too many open files: '/data/shard-17.tar'\n",
            "too_many_open_files",
        ),
        (
            "a syntax error",
            "  File \"/app/train.py\", line 3\n    if x\n        ^\nSyntaxError: expected ':'\n",
            "user_code_error",
        ),
        (
            "the port of the rendezvous",
            "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, \
             useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
            "rendezvous_port_in_use",
        ),
        (
            "a master that cannot be resolved",
            "[W socket.cpp:697] [c10d] The IPv6 network addresses of (j-master-0, 23456) cannot be retrieved \
             (gai error: -2 - Name or service not known).\n",
            "dns_failure",
        ),
        (
            "small shared memory",
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that \
             dataloader's workers are out of shared memory.\n",
            "shm_too_small",
        ),
        (
            "an old driver",
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n",
            "driver_mismatch",
        ),
        (
            "no kernel image",
            "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device\n",
            "version_mismatch",
        ),
        (
            "a full disk",
            "OSError: [Errno 28] No space left on device: '/data/cache/x.arrow'\n",
            "checkpoint_io_error",
        ),
        (
            "a container without its program",
            "unable to start container process: exec: \"pyhton\": executable file not found in $PATH: unknown\n",
            "command_not_found",
        ),
    ];
    for (name, log, want) in cases {
        let report = first(log);
        assert_eq!(labels(&report)[0], want, "{name}: {:?}", labels(&report));
    }
}

#[test]
fn missing_python_module_is_named() {
    let elastic = "E1116 15:50:01.000 71 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) \
                   local_rank: 0 (pid: 81) of binary: /usr/bin/python3\n\
                   Traceback (most recent call last):\n  File \"/usr/bin/torchrun\", line 8, in <module>\n    \
                   sys.exit(main())\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n";
    let cases = [
        (
            "a name",
            "/usr/bin/python3: No module named trian\n",
            "trian",
        ),
        (
            "a module of a package",
            "/opt/venv/bin/python3.12: No module named app.trian\n",
            "app.trian",
        ),
        (
            "a package that cannot be run",
            "/usr/bin/python: No module named app.__main__; 'app' is a package and cannot be directly executed\n",
            "app.__main__",
        ),
        (
            "its package",
            "/usr/bin/python3: Error while finding module specification for 'ap.train' (ModuleNotFoundError: No module \
             named 'ap')\n",
            "ap.train",
        ),
        (
            "started by torchrun",
            "[default0]:/usr/bin/python3: No module named trian\n",
            "trian",
        ),
    ];
    for (name, line, module) in cases {
        // Also far after the beginning of a log, of which every line is read.
        for before in ["", &"loading a shard of the data\n".repeat(1000)] {
            let report = first(&format!("{before}{line}{elastic}"));
            let verdict = &report.verdicts[0];
            assert_eq!(verdict.label, "module_missing", "{name}: {verdict:?}");
            assert!(
                verdict.sentence.contains(module),
                "{name}: {}",
                verdict.sentence
            );
            let summary = report.summary(1).expect("a failure");
            assert!(summary.digest().is_some(), "{name}: {summary:?}");
        }
    }
    let near =
        "optional plugin: No module named tensorboard, going on without it\nstep 1 loss 2.0\n";
    let report = first(near);
    assert!(
        !labels(&report).contains(&"module_missing"),
        "{:?}",
        labels(&report)
    );
}

#[test]
fn warnings_are_not_causes() {
    let forks = "huggingface/tokenizers: The current process just got forked, after parallelism has already been \
                 used. Disabling parallelism to avoid deadlocks...\nTo disable this warning, you can either:\n\
                 \t- Avoid using `tokenizers` before the fork if possible\n\
                 \t- Explicitly set the environment variable TOKENIZERS_PARALLELISM=(true | false)\nstep 1 loss 2.0\n";
    assert!(first(forks).is_healthy(), "{:?}", labels(&first(forks)));
}

const RANK_0: &str = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4\n";
const RANK_1: &str = "Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/4\n";

#[test]
fn lightning_without_a_launcher() {
    let several = |logs: &[(Option<u32>, String)]| {
        let mut doctor = doctor();
        for (at, (rank, log)) in logs.iter().enumerate() {
            let id = doctor.source(&format!("log-of-{at}"));
            doctor.set_rank_and_node(id, *rank, None);
            doctor.bytes(id, log.as_bytes());
        }
        let report = doctor.finish();
        report.verdicts[0].label == "launcher_missing"
    };
    let (zero, one) = (|| RANK_0.to_owned(), || RANK_1.to_owned());
    assert!(several(&[(None, zero() + RANK_0)]), "twice in one log");
    assert!(
        several(&[(Some(0), zero()), (Some(1), zero())]),
        "two ranks"
    );
    let taken = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network \
                 address. port: 23456, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n";
    assert!(
        several(&[(Some(0), zero()), (Some(1), zero() + taken)]),
        "the second finds the port of the first taken"
    );
    assert!(
        !several(&[(Some(0), zero()), (Some(1), one() + taken)]),
        "a port that is taken, of ranks that know theirs"
    );
    assert!(
        !several(&[(Some(0), zero()), (Some(1), one())]),
        "as it should be"
    );
    assert!(
        !several(&[(None, zero() + RANK_1)]),
        "as it should be, in one log"
    );
    assert!(
        !several(&[(Some(0), zero()), (Some(0), zero())]),
        "two attempts of one rank"
    );
    let restarted = zero() + "RuntimeError: CUDA out of memory.\n" + RANK_0;
    assert!(
        !several(&[(None, restarted)]),
        "started again after a failure"
    );
    let alone = zero().replace("1/4", "1/1");
    assert!(!several(&[(None, alone.clone() + &alone)]), "worlds of one");
}

#[test]
fn torchrun_restart_with_stale_store() {
    let failed = "E1116 12:00:00.000000 71 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 3) \
                  local_rank: 1 (pid: 73) of binary: /usr/bin/python3\n";
    let refused = |address: &str| {
        format!(
            "[rank0]: RuntimeError: Gloo connectFullMesh failed with [/w/gloo/transport/tcp/pair.cc:799] connect \
             [{address}]:41225: Connection refused\n"
        )
    };
    for address in ["127.0.0.1", "10.0.0.7"] {
        let report = first(&(failed.to_owned() + &refused(address)));
        assert_eq!(labels(&report)[0], "rendezvous_store_stale", "{address}");
        assert!(
            report.verdicts[0]
                .next
                .contains("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"),
            "{}",
            report.verdicts[0].next
        );
        let never = first(&refused(address));
        assert_ne!(
            labels(&never)[0],
            "rendezvous_store_stale",
            "no rank had failed"
        );
    }
}

#[test]
fn exit_codes_of_megatron() {
    let log = "ERROR:megatron.core.rerun_state_machine:Unexpected result nan at /app/loss.py line 88, invokation #1 \
               at iteration #150 (message='found NaN in the loss')\n";
    let concluded = |log: &str, code| {
        let mut doctor = doctor();
        let id = doctor.source("j-worker-0");
        doctor.bytes(id, log.as_bytes());
        doctor.add_known_end(Known {
            pod: "j-worker-0".into(),
            rank: None,
            node: Some("node-7".into()),
            end: End::Exit(code),
            at: None,
            memory_limit: None,
            on_purpose: None,
        });
        let report = doctor.finish();
        (
            report.verdicts[0].label.clone(),
            report.verdicts[0].nodes.clone(),
        )
    };
    let node = vec!["node-7".to_owned()];
    assert_eq!(concluded(log, 16), ("rerun_requested".into(), node.clone()));
    assert_eq!(concluded(log, 17), ("result_invalid".into(), node));
    assert_eq!(
        concluded("step 1\n", 16).0,
        "worker_exit_nonzero",
        "another program's 16"
    );
}
