{{/* Made by `cargo xtask gen` from the tables of crates/kube; do not edit. */}}
{{- define "trainyard.rights.jobs" -}}
# watches jobs, and deletes those whose `ttlSecondsAfterFinished` is over
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
# writes the status of jobs
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
# sets owner references if the API server requires this right
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
# creates, watches and deletes the pods of jobs, and labels those of a gang that restarts in place
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
# reads the end of the log of a pod that failed, to report why, and of one pod of each running job, to read its step
- apiGroups:
  - ""
  resources:
  - pods/log
  verbs:
  - get
# gives each pod its DNS name
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
# creates the keys of an MPIJob and of supervisors; it can read no Secret, not even this one
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
# creates PodGroups for gangs that Volcano or the coscheduling plugin starts
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
# creates Workloads and PodGroups for gangs that the cluster's own scheduler starts
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
# emits events on the job
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
# creates the ServiceAccount of the launcher of an MPIJob v1
- apiGroups:
  - ""
  resources:
  - serviceaccounts
  verbs:
  - create
  - get
# lets that ServiceAccount start ranks in the job's own workers
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
# closes the ports of the agent, of supervisors and of the preflight to pods of other jobs
- apiGroups:
  - networking.k8s.io
  resources:
  - networkpolicies
  verbs:
  - create
  - get
  - patch
{{- end }}
{{- define "trainyard.rights.trainJobs" -}}
# watches TrainJobs
- apiGroups:
  - trainer.kubeflow.org
  resources:
  - trainjobs
  verbs:
  - get
  - list
  - watch
# writes the status of TrainJobs
- apiGroups:
  - trainer.kubeflow.org
  resources:
  - trainjobs/status
  verbs:
  - get
  - patch
  - update
# sets owner references if the API server requires this right
- apiGroups:
  - trainer.kubeflow.org
  resources:
  - trainjobs/finalizers
  verbs:
  - update
# reads the runtimes that TrainJobs of the same namespace name
- apiGroups:
  - trainer.kubeflow.org
  resources:
  - trainingruntimes
  verbs:
  - list
  - watch
# creates the claims that a runtime states; it changes and deletes none
- apiGroups:
  - ""
  resources:
  - persistentvolumeclaims
  verbs:
  - create
  - get
{{- end }}
{{- define "trainyard.rights.trainRuntimes" -}}
# reads the runtimes that TrainJobs name; without this right those that are built in
- apiGroups:
  - trainer.kubeflow.org
  resources:
  - clustertrainingruntimes
  verbs:
  - list
  - watch
{{- end }}
{{- define "trainyard.rights.nodes" -}}
# sees the resources that other pods use on the nodes
- apiGroups:
  - ""
  resources:
  - pods
  verbs:
  - list
  - watch
# reads the priority of gangs
- apiGroups:
  - scheduling.k8s.io
  resources:
  - priorityclasses
  verbs:
  - list
  - watch
# reads the fabrics that jobs name
- apiGroups:
  - trainyard.dev
  resources:
  - fabrics
  verbs:
  - list
  - watch
# distinguishes a pod on a dead node from a slow one
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
# sees how long a node has not responded
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
# writes the result of a preflight to its node, and taints a node that failed until it passes
- apiGroups:
  - ""
  resources:
  - nodes
  verbs:
  - get
  - patch
{{- end }}
{{- define "trainyard.rights.webhooks" -}}
# writes its CA bundle to the conversion webhook of MPIJob
- apiGroups:
  - apiextensions.k8s.io
  resources:
  - customresourcedefinitions
  resourceNames:
  - mpijobs.kubeflow.org
  verbs:
  - get
  - patch
# writes its CA bundle to the validating webhook
- apiGroups:
  - admissionregistration.k8s.io
  resources:
  - validatingwebhookconfigurations
  resourceNames:
  - validator.trainyard.dev
  verbs:
  - get
  - patch
# writes its CA bundle to the mutating webhook
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
# reviews the pod tokens of progress reports and of leaders of gangs
- apiGroups:
  - authentication.k8s.io
  resources:
  - tokenreviews
  verbs:
  - create
{{- end }}
{{- define "trainyard.rights.own" -}}
# creates the Secret with its certificate; a name cannot limit this verb
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
# creates the Lease of the leader; a name cannot limit this verb
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
{{- define "trainyard.rights.dashboard" -}}
# shows jobs
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
# shows the pods of jobs, and what other pods use on the nodes
- apiGroups:
  - ""
  resources:
  - pods
  verbs:
  - get
  - list
  - watch
# shows the events of a job and of its pods
- apiGroups:
  - ""
  resources:
  - events
  verbs:
  - get
  - list
  - watch
# shows the ends of logs that the operator kept, to whoever may read logs; ConfigMaps of others are neither listed nor read
- apiGroups:
  - ""
  resources:
  - configmaps
  verbs:
  - get
{{- end }}
{{- define "trainyard.rights.dashboardNodes" -}}
# shows nodes, to whoever may list them
- apiGroups:
  - ""
  resources:
  - nodes
  verbs:
  - get
  - list
  - watch
{{- end }}
{{- define "trainyard.rights.dashboardReviews" -}}
# finds out whose a token is
- apiGroups:
  - authentication.k8s.io
  resources:
  - tokenreviews
  verbs:
  - create
# finds out what that user may see
- apiGroups:
  - authorization.k8s.io
  resources:
  - subjectaccessreviews
  verbs:
  - create
{{- end }}
{{- define "trainyard.rights.dashboardLogs" -}}
# reads logs; with `auth: token` they are read with the user's own token, and this right is not given
- apiGroups:
  - ""
  resources:
  - pods/log
  verbs:
  - get
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
