{{- define "deepclean.labels" -}}
app.kubernetes.io/name: deepclean
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "deepclean.name" -}}
{{- $release := .root.Release.Name | trunc 30 | trimSuffix "-" -}}
{{ if contains "deepclean" $release }}{{ $release }}{{ else }}{{ $release }}-deepclean{{ end }}-{{ .name | replace "_" "-" }}
{{- end }}

{{- define "deepclean.port" -}}
{{- $ports := dict "metadata" 9701 "snapshots" 9702 "key_deletion" 9703 "directory_deletion" 9704 "mock_scm" 9705 "streaming" 9706 -}}
{{ get $ports . }}
{{- end }}

{{- define "deepclean.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* What all pods have, of the dictionary root, name. */ -}}
{{- define "deepclean.pod" -}}
automountServiceAccountToken: false
# Else Kubernetes sets variables of the names of Services, which a process refuses as settings that it does not know.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values }}
terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }}
{{- with .imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "deepclean.container" -}}
image: {{ include "deepclean.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* Whether a process signs commands. */ -}}
{{- define "deepclean.signs" -}}
{{- if and .root.Values.signing.existingSecret (has .name (list "snapshots" "key_deletion" "directory_deletion" "mock_scm" "admin" "tools")) }}true{{ end }}
{{- end }}

{{- /* With fsGroup a Secret's files are readable for a group, and without it for root alone. The program takes neither,
so it gets copies: in memory, of its own user, of mode 0600. Java's login file is made of the credentials. */ -}}
{{- define "deepclean.secretsContainer" -}}
- name: secrets
  {{- include "deepclean.container" .root | nindent 2 }}
  command:
    - sh
    - -euc
    - |
      install -m 0600 /secrets/* /run/deepclean/
      {{- if and .root.Values.kafka.existingSecret (eq .name "streaming") }}
      python -c 'from pathlib import Path; from schemas.credentials import read_credentials, write_login_file as write; file = Path("/run/deepclean/streaming.json"); write(file, read_credentials(file))'
      {{- end }}
  resources:
    requests: {cpu: 50m, memory: 64Mi}
    limits: {memory: 256Mi}
  volumeMounts:
    - {name: secrets, mountPath: /secrets, readOnly: true}
    - {name: own-secrets, mountPath: /run/deepclean}
{{- end }}

{{- define "deepclean.secretVolumes" -}}
- name: own-secrets
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- with .root.Values.kafka.existingSecret }}
      - secret:
          name: {{ . }}
          items:
            {{- range $.logins | default (list $.name) }}
            - {key: {{ . }}.json, path: {{ . }}.json}
            {{- end }}
            - {key: ca.pem, path: ca.pem}
      {{- end }}
      {{- if ne .name "admin" }}
      - secret:
          name: {{ .root.Values.http.existingSecret }}
          items:
            - {key: http-token, path: http-token}
      {{- end }}
      {{- if include "deepclean.signs" . }}
      - secret:
          name: {{ .root.Values.signing.existingSecret }}
          items:
            {{- range .signers | default (list .name) }}
            - {key: {{ . }}.signing, path: {{ . }}.signing}
            {{- end }}
      {{- end }}
{{- end }}

{{- define "deepclean.probes" -}}
# While a process opens its databases and catches up, it is not ready, and /healthz may not answer with 200 either.
startupProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: {{ mul .Values.startupMinutes 6 }}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}

{{- define "deepclean.claimSpec" -}}
accessModes: [ReadWriteOnce]
{{- with .storageClassName }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests: {storage: {{ .size }}}
{{- end }}
