{{/*
A value as a CEL literal. All items of a map or list must have one type, so each item is a dyn.
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
