use super::*;
use crate::spec;

const FABRIC: &str = "\
apiVersion: trainyard.dev/v1alpha1
kind: Fabric
metadata: {name: roce-a}
spec:
  attachments: [networks/roce-a]
  interface: net1
  rdma: {resource: rdma/hca, count: 2}
  variables: {NCCL_IB_HCA: mlx5, NCCL_IB_GID_INDEX: \"3\"}
  expects: {transport: roce, mtu: 9000, bandwidthGbps: 400}
  shm: 16Gi
  network: {plugin: macvlan, master: ens1, addresses: {by: whereabouts, range: 10.20.0.0/16}}
";

const JOB: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j, annotations: {trainyard.dev/fabric: roce-a}}
spec:
  elasticPolicy: {minReplicas: 1, maxReplicas: 4, rdzvHost: etcd.example.com}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          hostNetwork: false
          nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
          containers:
          - name: pytorch
            image: t
            securityContext: {capabilities: {add: [IPC_LOCK]}}
            resources:
              requests: {cpu: 1500m, memory: 64Gi, ephemeral-storage: 10Gi}
              limits: {nvidia.com/gpu: 8, memory: 80Gi}
            volumeMounts:
            - {name: saved, mountPath: /ckpt}
            - {name: data, mountPath: /data, readOnly: true}
            - {name: local, mountPath: /scratch}
            - {name: settings, mountPath: /etc/train}
          - name: sidecar
            image: s
            resources: {requests: {cpu: 500m}}
          volumes:
          - {name: saved, persistentVolumeClaim: {claimName: saved}}
          - {name: data, persistentVolumeClaim: {claimName: data}}
          - {name: local, hostPath: {path: /mnt/nvme}}
          - {name: settings, configMap: {name: settings}}
";

fn job(text: &str) -> Job {
    let file = spec::read(text.as_bytes()).unwrap();
    let checked = spec::check(&file.documents[0]);
    checked
        .job
        .unwrap_or_else(|| panic!("{:#?}", checked.findings))
}

fn fabric() -> Fabric {
    let file = spec::read(FABRIC.as_bytes()).unwrap();
    fabric::read(&file.documents[0]).fabric.unwrap()
}

fn volume(path: &str, host_path: Option<&str>) -> VolumeNeeds {
    VolumeNeeds {
        written: path.contains("ckpt").then_some(true),
        path: Some(path.to_owned()),
        host_path: host_path.map(str::to_owned),
        ..VolumeNeeds::default()
    }
}

#[test]
fn a_job_on_a_fabric_needs_what_both_say() {
    let got = needs(&job(JOB), Some(&fabric()), Role::Worker);
    let want = Needs {
        asked_by: Some("PyTorchJob `j`, Worker".to_owned()),
        cpu_milli: Some(1500),
        memory_bytes: Some(64 << 30),
        disk_bytes: Some(10 << 30),
        shm_bytes: Some(16 << 30),
        gpus: Some(8),
        gpu_model: Some("NVIDIA-H100-80GB-HBM3".to_owned()),
        interface: Some("net1".to_owned()),
        address_range: Some("10.20.0.0/16".to_owned()),
        mtu: Some(9000),
        bandwidth_gbps: Some(400),
        transport: Some("roce".to_owned()),
        rdma_devices: Some(2),
        hcas: Some("mlx5".to_owned()),
        gid_index: Some(3),
        locks_memory: Some(true),
        names: Some(vec!["etcd.example.com".to_owned()]),
        ports: None,
        volumes: Some(vec![
            volume("/ckpt", None),
            volume("/scratch", Some("/mnt/nvme")),
        ]),
    };
    assert_eq!(got, want);
    assert!(got.rdma() && got.uses_gpus());
    assert_eq!(
        needs(&job(JOB), None, Role::Master),
        Needs::default(),
        "no such role"
    );
}

#[test]
fn without_a_fabric_the_network_is_the_users_own() {
    let got = needs(&job(JOB), None, Role::Worker);
    assert_eq!(
        (got.interface.clone(), got.mtu, got.shm_bytes),
        (None, None, None)
    );
    assert!(!got.rdma());
    let stated = |value: &str| {
        let env = format!(
            "image: t\n            env: [{{name: NCCL_SOCKET_IFNAME, value: \"{value}\"}}]"
        );
        needs(&job(&JOB.replacen("image: t", &env, 1)), None, Role::Worker).interface
    };
    assert_eq!(stated("=ib0").as_deref(), Some("ib0"));
    assert_eq!(stated("ib0").as_deref(), Some("ib0"));
    for several in ["eth", "ib0,ib1", "^lo,docker0"] {
        assert_eq!(stated(several), None, "{several}");
    }
}

#[test]
fn pods_on_the_hosts_network_need_its_ports() {
    let on_host = JOB.replace("hostNetwork: false", "hostNetwork: true");
    let got = needs(&job(&on_host), None, Role::Worker);
    assert_eq!(got.ports, Some(vec![23456]));
}

#[test]
fn needs_on_node_keep_host_folders() {
    let got = needs(&job(JOB), None, Role::Worker).on_the_node();
    assert_eq!(
        got.volumes,
        Some(vec![volume("/mnt/nvme", Some("/mnt/nvme"))])
    );
    assert_eq!(Needs::default().on_the_node(), Needs::default());
}

#[test]
fn checkpoint_volume_is_distinguished() {
    let written = |words: &str| {
        let text = JOB
            .replace("/ckpt", "/vol")
            .replacen("name: saved", "name: vol", 3)
            .replace("claimName: saved", "claimName: vol")
            .replacen("image: t", &format!("image: t\n            {words}"), 1);
        let volumes = needs(&job(&text), None, Role::Worker).volumes.unwrap();
        volumes[0].written
    };
    let cases = [
        ("command: [train, --save-dir, /vol/run]", Some(true)),
        ("command: [train, --output_dir=/vol]", Some(true)),
        (
            "command: [sh, -c, 'train --checkpoint-dir /vol/a']",
            Some(true),
        ),
        ("env: [{name: CHECKPOINT_DIR, value: /vol}]", Some(true)),
        ("command: [train, --data, /vol/imagenet]", None),
        ("command: [train, --save-dir, /volume]", None),
    ];
    for (words, want) in cases {
        assert_eq!(written(words), want, "{words}");
    }
}

#[test]
fn needs_survive_the_way_into_a_pod() {
    let needs = needs(&job(JOB), Some(&fabric()), Role::Worker);
    let text = serde_json::to_string(&needs).unwrap();
    assert_eq!(serde_json::from_str::<Needs>(&text).unwrap(), needs);
    assert_eq!(
        serde_json::from_str::<Needs>("{}").unwrap(),
        Needs::default()
    );
}
