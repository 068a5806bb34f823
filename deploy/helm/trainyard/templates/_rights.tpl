{{/* Made by `cargo xtask gen` from the tables of crates/kube; do not edit. */}}
{{- define "trainyard.rights.jobs" -}}
# follows jobs, and deletes those whose time after the end is over
- apiGroups:
  - kubeflow.org
  resources:
  - jaxjobs
  - mpijobs
  - paddlejobs
  - pytorchjobs
  - tfjobs
  - xgboostjobs
  verbs:
  - get
  - list
  - watch
  - delete
# writes what it saw and decided
- apiGroups:
  - kubeflow.org
  resources:
  - jaxjobs/status
  - mpijobs/status
  - paddlejobs/status
  - pytorchjobs/status
  - tfjobs/status
  - xgboostjobs/status
  verbs:
  - get
  - patch
  - update
# owns pods in the job's name where the API server asks for this right
- apiGroups:
  - kubeflow.org
  resources:
  - jaxjobs/finalizers
  - mpijobs/finalizers
  - paddlejobs/finalizers
  - pytorchjobs/finalizers
  - tfjobs/finalizers
  - xgboostjobs/finalizers
  verbs:
  - update
# starts, follows and ends the pods of jobs
- apiGroups:
  - ""
  resources:
  - pods
  verbs:
  - create
  - delete
  - get
  - list
  - patch
  - watch
# reads the end of the log of a pod that failed, to say why, and of one pod of each job that runs, to know its step
- apiGroups:
  - ""
  resources:
  - pods/log
  verbs:
  - get
# gives each pod its name on the network
- apiGroups:
  - ""
  resources:
  - services
  verbs:
  - create
  - delete
  - get
  - list
  - patch
  - watch
# keeps the hostfile of an MPIJob, and the last lines of what failed; ConfigMaps of others are never listed
- apiGroups:
  - ""
  resources:
  - configmaps
  verbs:
  - create
  - get
  - patch
# makes the keys of an MPIJob; it can read no Secret, not even this one
- apiGroups:
  - ""
  resources:
  - secrets
  verbs:
  - create
# runs the launcher of an MPIJob v2beta1
- apiGroups:
  - batch
  resources:
  - jobs
  verbs:
  - create
  - delete
  - get
  - list
  - patch
  - watch
# scales an elastic PyTorchJob between its bounds
- apiGroups:
  - autoscaling
  resources:
  - horizontalpodautoscalers
  verbs:
  - create
  - delete
  - get
  - patch
# tells Volcano or the coscheduling plugin of gangs that they are to start
- apiGroups:
  - scheduling.volcano.sh
  - scheduling.x-k8s.io
  resources:
  - podgroups
  verbs:
  - create
  - delete
  - list
  - patch
  - watch
# tells the cluster's own scheduler of gangs that it is to start
- apiGroups:
  - scheduling.k8s.io
  resources:
  - workloads
  - podgroups
  verbs:
  - create
  - delete
  - list
  - patch
  - watch
# says on the job what happened
- apiGroups:
  - ""
  - events.k8s.io
  resources:
  - events
  verbs:
  - create
  - patch
{{- end }}
{{- define "trainyard.rights.launchers" -}}
# gives the launcher of an MPIJob v1 an identity
- apiGroups:
  - ""
  resources:
  - serviceaccounts
  verbs:
  - create
  - get
# lets that identity start ranks in the job's own workers
- apiGroups:
  - rbac.authorization.k8s.io
  resources:
  - roles
  - rolebindings
  verbs:
  - create
  - get
  - patch
# only to be allowed to grant it; the operator itself never executes in a pod
- apiGroups:
  - ""
  resources:
  - pods/exec
  verbs:
  - create
{{- end }}
{{- define "trainyard.rights.networkPolicies" -}}
# closes the agent's port and the preflight's port to pods of other jobs
- apiGroups:
  - networking.k8s.io
  resources:
  - networkpolicies
  verbs:
  - create
  - get
  - patch
{{- end }}
{{- define "trainyard.rights.nodes" -}}
# sees what room other pods leave on the nodes
- apiGroups:
  - ""
  resources:
  - pods
  verbs:
  - list
  - watch
# knows which gang goes first
- apiGroups:
  - scheduling.k8s.io
  resources:
  - priorityclasses
  verbs:
  - list
  - watch
# puts jobs on the fabrics that they name
- apiGroups:
  - trainyard.dev
  resources:
  - fabrics
  verbs:
  - list
  - watch
# tells a pod on a dead node from a slow one
- apiGroups:
  - ""
  resources:
  - nodes
  verbs:
  - get
  - list
  - watch
{{- end }}
{{- define "trainyard.rights.nodeLeases" -}}
# sees how long a node has been silent
- apiGroups:
  - coordination.k8s.io
  resources:
  - leases
  verbs:
  - get
  - list
  - watch
{{- end }}
{{- define "trainyard.rights.marks" -}}
# keeps what a preflight found on its node, and taints one that failed until it passes
- apiGroups:
  - ""
  resources:
  - nodes
  verbs:
  - get
  - patch
{{- end }}
{{- define "trainyard.rights.webhooks" -}}
# puts the authority of its certificate where MPIJob is converted
- apiGroups:
  - apiextensions.k8s.io
  resources:
  - customresourcedefinitions
  resourceNames:
  - mpijobs.kubeflow.org
  verbs:
  - get
  - patch
# puts the authority of its certificate where jobs are checked
- apiGroups:
  - admissionregistration.k8s.io
  resources:
  - validatingwebhookconfigurations
  resourceNames:
  - validator.trainyard.dev
  verbs:
  - get
  - patch
# puts the authority of its certificate where jobs are completed
- apiGroups:
  - admissionregistration.k8s.io
  resources:
  - mutatingwebhookconfigurations
  resourceNames:
  - defaulter.trainyard.dev
  verbs:
  - get
  - patch
{{- end }}
{{- define "trainyard.rights.pushes" -}}
# asks which pod a token is of that came with progress
- apiGroups:
  - authentication.k8s.io
  resources:
  - tokenreviews
  verbs:
  - create
{{- end }}
{{- define "trainyard.rights.own" -}}
# makes the Secret with its certificate; a name cannot limit this verb
- apiGroups:
  - ""
  resources:
  - secrets
  verbs:
  - create
# shares its certificate between replicas, and renews it
- apiGroups:
  - ""
  resources:
  - secrets
  resourceNames:
  - trainyard-webhook
  verbs:
  - get
  - update
# makes the Lease of the leader; a name cannot limit this verb
- apiGroups:
  - coordination.k8s.io
  resources:
  - leases
  verbs:
  - create
# elects one leader among its replicas
- apiGroups:
  - coordination.k8s.io
  resources:
  - leases
  resourceNames:
  - trainyard
  verbs:
  - get
  - patch
  - update
{{- end }}
{{- define "trainyard.rights.shadow" -}}
- apiGroups:
  - kubeflow.org
  resources:
  - jaxjobs
  - mpijobs
  - paddlejobs
  - pytorchjobs
  - tfjobs
  - xgboostjobs
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - kubeflow.org
  resources:
  - jaxjobs/status
  - mpijobs/status
  - paddlejobs/status
  - pytorchjobs/status
  - tfjobs/status
  - xgboostjobs/status
  verbs:
  - get
- apiGroups:
  - ""
  resources:
  - pods
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - ""
  resources:
  - services
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - ""
  resources:
  - configmaps
  verbs:
  - get
- apiGroups:
  - batch
  resources:
  - jobs
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - autoscaling
  resources:
  - horizontalpodautoscalers
  verbs:
  - get
- apiGroups:
  - scheduling.volcano.sh
  - scheduling.x-k8s.io
  resources:
  - podgroups
  verbs:
  - list
  - watch
- apiGroups:
  - scheduling.k8s.io
  resources:
  - workloads
  - podgroups
  verbs:
  - list
  - watch
{{- end }}
