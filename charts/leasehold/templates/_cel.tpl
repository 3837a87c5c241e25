{{/*
A value as a literal of CEL, which wants the items of a map or list to be of one type: dyn is that of all.
*/}}
{{- define "app.cel" -}}
{{- if kindIs "map" . -}}
{ {{- $first := true -}}
{{- range $key, $value := . -}}
{{- if not $first }}, {{ end -}}{{- $first = false -}}
{{ $key | toJson }}: dyn({{ include "app.cel" $value }})
{{- end -}} }
{{- else if kindIs "slice" . -}}
[
{{- range $index, $value := . -}}
{{- if $index }}, {{ end -}}
dyn({{ include "app.cel" $value }})
{{- end -}}
]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}
