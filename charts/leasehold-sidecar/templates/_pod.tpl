{{/* Fields of the pod's spec. The pod's own token would reach the workload too; service links are noise. */}}
{{- define "leasehold.pod" -}}
serviceAccountName: {{ include "leasehold.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- end -}}

{{/* The sidecar, an item of `initContainers`: native, so it starts before the workload and ends after it. */}}
{{- define "leasehold.sidecar" -}}
{{- include "leasehold.container" (dict "root" . "lease" (include "leasehold.lease" .) "labelled" (include "leasehold.labelled" .)) -}}
{{- end -}}

{{/* The same for any lease, with or without a token. */}}
{{- define "leasehold.container" -}}
{{- include "leasehold.check" .root -}}
{{- $values := .root.Values.leasehold -}}
- name: leasehold
  image: {{ include "leasehold.image" .root | quote }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  restartPolicy: Always
  args:
    - run
    - --lease-name={{ .lease }}
    - --mongodb-uri-file=/etc/leasehold/mongodb/uri
    - --status-directory=/run/leasehold
    - --http-listen={{ $values.http.address }}:{{ $values.http.port }}
    - --workload-ends-first=true
    {{- if .labelled }}
    - --kubernetes-enabled=on
    - --kubernetes-label-prefix={{ $values.kubernetes.labelPrefix }}
    - --kubernetes-demote-others={{ $values.kubernetes.demoteOthers }}
    - --kubernetes-events={{ $values.kubernetes.events }}
    {{- else }}
    - --kubernetes-enabled=off
    {{- end }}
    {{- range $section, $keys := $values.config }}
    {{- range $key, $value := $keys }}
    - {{ printf "--%s-%s=%v" $section ($key | replace "_" "-") $value | quote }}
    {{- end }}
    {{- end }}
  env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: POD_NAMESPACE
      valueFrom:
        fieldRef:
          fieldPath: metadata.namespace
    - name: POD_UID
      valueFrom:
        fieldRef:
          fieldPath: metadata.uid
    {{- with $values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: leasehold
      containerPort: {{ $values.http.port }}
      protocol: TCP
  {{- /* Numeric: names of a native sidecar's ports are not resolved everywhere before 1.32. */}}
  startupProbe:
    httpGet:
      path: /livez
      port: {{ $values.http.port }}
    {{- toYaml $values.startupProbe | nindent 4 }}
  livenessProbe:
    httpGet:
      path: /livez
      port: {{ $values.http.port }}
    {{- toYaml $values.livenessProbe | nindent 4 }}
  readinessProbe:
    httpGet:
      path: /readyz
      port: {{ $values.http.port }}
    {{- toYaml $values.readinessProbe | nindent 4 }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    {{- toYaml $values.securityContext | nindent 4 }}
  volumeMounts:
    - name: leasehold-status
      mountPath: /run/leasehold
    - name: leasehold-mongodb
      mountPath: /etc/leasehold/mongodb
      readOnly: true
    {{- if .labelled }}
    - name: leasehold-token
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
    {{- end }}
    {{- with $values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Items of the pod's `volumes`. */}}
{{- define "leasehold.volumes" -}}
{{- include "leasehold.podVolumes" (dict "root" . "labelled" (include "leasehold.labelled" .)) -}}
{{- end -}}

{{- define "leasehold.podVolumes" -}}
{{- $values := .root.Values.leasehold -}}
- name: leasehold-status
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
- name: leasehold-mongodb
  secret:
    secretName: {{ required "leasehold: set leasehold.mongodb.secretName to the Secret with the connection string" $values.mongodb.secretName | quote }}
    defaultMode: 292 # 0444; readers of YAML differ on octal numbers
    items:
      - key: {{ $values.mongodb.secretKey | quote }}
        path: uri
{{- if .labelled }}
- name: leasehold-token
  projected:
    defaultMode: 292 # 0444; readers of YAML differ on octal numbers
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: {{ $values.kubernetes.tokenExpirationSeconds }}
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An item of the workload's `env`. */}}
{{- define "leasehold.statusFile" -}}
- name: LEASEHOLD_STATUS_FILE
  value: {{ printf "%s/status.json" .Values.leasehold.statusDirectory | quote }}
{{- end -}}

{{/* An item of the workload's `volumeMounts`. */}}
{{- define "leasehold.statusMount" -}}
- name: leasehold-status
  mountPath: {{ .Values.leasehold.statusDirectory }}
  readOnly: true
{{- end -}}
