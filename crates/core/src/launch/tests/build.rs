//! Jobs for tests, in the words of a reader: `job(Kind::PyTorch).role(Role::Worker, 2)`.

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec, PodTemplateSpec};

use crate::spec::{
    Compat, Elastic, Framework, GangBy, Job, JobName, JobSettings, Kind, MpiImplementation, MpiV1,
    MpiV2, Namespace, PyTorch, RestartPolicy, RestartScope, Role, RoleSpec, RunPolicy, Tf,
};

/// A job named `j` in namespace `n`, without roles.
pub(super) fn job(kind: Kind) -> Build {
    let framework = match kind {
        Kind::PyTorch => Framework::PyTorch(PyTorch {
            nproc_per_node: Some("auto".to_owned()),
            elastic: None,
        }),
        Kind::Tf => Framework::Tf(Tf::default()),
        Kind::MpiV1 => Framework::MpiV1(MpiV1 {
            slots_per_worker: 1,
            main_container: None,
        }),
        Kind::MpiV2 => Framework::MpiV2(MpiV2 {
            slots_per_worker: 1,
            run_launcher_as_worker: false,
            ssh_auth_mount_path: "/root/.ssh".to_owned(),
            launcher_creation: crate::spec::LauncherCreation::AtStartup,
            implementation: MpiImplementation::OpenMpi,
        }),
        Kind::XgBoost => Framework::XgBoost,
        Kind::Paddle => Framework::Paddle(None),
        Kind::Jax | Kind::Train => Framework::Jax,
    };
    Build(Job {
        kind,
        name: JobName::parse("j").unwrap(),
        namespace: Namespace::parse("n").unwrap(),
        uid: None,
        annotations: [("team".to_owned(), "vision".to_owned())].into(),
        roles: [].into(),
        run_policy: RunPolicy::default(),
        framework,
        settings: JobSettings::default(),
    })
}

/// A job under construction.
#[derive(Clone)]
pub(super) struct Build(Job);

impl Build {
    /// Adds a role with one container, its port as defaulting leaves it, and the kind's policy.
    pub(super) fn role(mut self, role: Role, replicas: u32) -> Self {
        let kind = self.0.kind;
        let ports = kind.port().map(|(name, number)| {
            vec![ContainerPort {
                name: Some(name.to_owned()),
                container_port: number,
                ..ContainerPort::default()
            }]
        });
        let container = Container {
            name: kind.container().to_owned(),
            image: Some("trainer:1".to_owned()),
            ports,
            ..Container::default()
        };
        let spec = RoleSpec {
            replicas,
            restart_policy: kind.default_restart_policy(role),
            template: PodTemplateSpec {
                metadata: None,
                spec: Some(PodSpec {
                    containers: vec![container],
                    ..PodSpec::default()
                }),
            },
        };
        self.0.roles.insert(role, spec);
        self
    }

    /// Changes the template of `role`.
    pub(super) fn template(mut self, role: Role, edit: impl FnOnce(&mut PodTemplateSpec)) -> Self {
        edit(&mut self.0.roles.get_mut(&role).unwrap().template);
        self
    }

    /// Changes the pod spec of `role`.
    pub(super) fn pod(self, role: Role, edit: impl FnOnce(&mut PodSpec)) -> Self {
        self.template(role, |template| edit(template.spec.as_mut().unwrap()))
    }

    /// Changes the first container of `role`.
    pub(super) fn container(self, role: Role, edit: impl FnOnce(&mut Container)) -> Self {
        self.pod(role, |spec| edit(&mut spec.containers[0]))
    }

    /// Sets the restart policy of `role`.
    pub(super) fn policy(mut self, role: Role, policy: RestartPolicy) -> Self {
        self.0.roles.get_mut(&role).unwrap().restart_policy = policy;
        self
    }

    /// Sets `nprocPerNode`.
    pub(super) fn processes(mut self, text: &str) -> Self {
        if let Framework::PyTorch(own) = &mut self.0.framework {
            own.nproc_per_node = Some(text.to_owned());
        }
        self
    }

    /// Makes the job elastic.
    pub(super) fn elastic(mut self, elastic: Elastic) -> Self {
        if let Framework::PyTorch(own) = &mut self.0.framework {
            if elastic.nproc_per_node.is_some() {
                own.nproc_per_node = None;
            }
            own.elastic = Some(elastic);
        }
        self
    }

    /// Sets `enableDynamicWorker`.
    pub(super) fn dynamic_worker(mut self) -> Self {
        if let Framework::Tf(own) = &mut self.0.framework {
            own.dynamic_worker = true;
        }
        self
    }

    /// Changes the fields of `MPIJob` v1.
    pub(super) fn mpi_v1(mut self, edit: impl FnOnce(&mut MpiV1)) -> Self {
        if let Framework::MpiV1(own) = &mut self.0.framework {
            edit(own);
        }
        self
    }

    /// Changes the fields of `MPIJob` v2beta1.
    pub(super) fn mpi_v2(mut self, edit: impl FnOnce(&mut MpiV2)) -> Self {
        if let Framework::MpiV2(own) = &mut self.0.framework {
            edit(own);
        }
        self
    }

    /// Changes the run policy.
    pub(super) fn run_policy(mut self, edit: impl FnOnce(&mut RunPolicy)) -> Self {
        edit(&mut self.0.run_policy);
        self
    }

    /// Brings an old behaviour back.
    pub(super) fn compat(mut self, compat: Compat) -> Self {
        self.0.settings.compat.insert(compat);
        self
    }

    /// Leaves the gang to somebody.
    pub(super) fn gang(mut self, by: GangBy) -> Self {
        self.0.settings.gang = Some(by);
        self
    }

    /// Sets the restart scope.
    pub(super) fn scope(mut self, scope: RestartScope) -> Self {
        self.0.settings.restart_scope = Some(scope);
        self
    }

    /// Gives the job an identity, as the API server does.
    pub(super) fn uid(mut self) -> Self {
        self.0.uid = Some("5c1a7f0e-0000-4000-8000-000000000001".to_owned());
        self
    }

    /// The job.
    pub(super) fn done(self) -> Job {
        self.0
    }
}

/// Elastic bounds with nothing else stated.
pub(super) fn bounds(min_replicas: u32, max_replicas: u32) -> Elastic {
    Elastic {
        min_replicas,
        max_replicas,
        rdzv_backend: "c10d".to_owned(),
        ..Elastic::default()
    }
}
