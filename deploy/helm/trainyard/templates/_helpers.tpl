{{- define "trainyard.selector" -}}
app.kubernetes.io/name: trainyard
app.kubernetes.io/component: operator
{{- end }}

{{- define "trainyard.dashboard" -}}
app.kubernetes.io/name: trainyard
app.kubernetes.io/component: dashboard
{{- end }}

{{- define "trainyard.labels" -}}
app.kubernetes.io/name: trainyard
app.kubernetes.io/part-of: trainyard
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* Webhooks are served unless they are off or nothing may be changed. */ -}}
{{- define "trainyard.webhooks" -}}
{{- if and .Values.webhook.enabled (not .Values.shadow) }}yes{{ end }}
{{- end }}

{{- /* Progress is taken with the certificate of the webhooks. */ -}}
{{- define "trainyard.pushes" -}}
{{- if and .Values.progressPush (include "trainyard.webhooks" .) }}yes{{ end }}
{{- end }}

{{- /* Leaders of gangs connect with the certificate of the webhooks; the agent's image brings the supervisor. */ -}}
{{- define "trainyard.gangs" -}}
{{- if and .Values.gangs.enabled .Values.agent.enabled (include "trainyard.webhooks" .) }}yes{{ end }}
{{- end }}

{{- define "trainyard.subject" -}}
- kind: ServiceAccount
  name: {{ .account }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}
