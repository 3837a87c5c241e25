{{/*
Mistakes that a schema cannot find, and that the API server would refuse after it has created a part of the release.
*/}}

{{/*
Refuses a list that contains two items with one name. `items` are the rendered items, `field` is the field that contains the name, and `keys`
are the values that the items can come from.
*/}}
{{- define "leasehold.checkUnique" -}}
{{- $seen := dict -}}
{{- range .items -}}
{{- $name := get . $.field | toString | trimSuffix "/" -}}
{{- if and $name (hasKey $seen $name) -}}
{{- fail (printf "leasehold: %s: the %s %s occurs twice or is reserved by leasehold: use another value" $.keys $.field $name) -}}
{{- end -}}
{{- $_ := set $seen $name true -}}
{{- end -}}
{{- end -}}

{{/* Refuses `resources`, the value of `key`, if a request exceeds its limit. */}}
{{- define "leasehold.checkResources" -}}
{{- $limits := .resources.limits | default dict -}}
{{- $key := .key -}}
{{- range $name, $request := .resources.requests -}}
{{- if hasKey $limits $name -}}
{{- $limit := get $limits $name -}}
{{- if gt (include "leasehold.quantity" $request | float64) (include "leasehold.quantity" $limit | float64) -}}
{{- fail (printf "leasehold: %s.requests.%s is %v, more than %s.limits.%s, which is %v: lower the request or raise the limit" $key $name $request $key $name $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A Kubernetes quantity (250m, 1.5, 64Mi, 1e3) as a number. */}}
{{- define "leasehold.quantity" -}}
{{- $units := dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit | default 1.0) -}}
{{- end -}}

{{/*
Refuses the value called `key` if it is meant to disable the chart. The chart would be rendered anyway, because the dependency's condition does
not name this value.
*/}}
{{- define "leasehold.checkCondition" -}}
{{- if eq (toString .enabled) "false" -}}
{{- fail (printf "leasehold: %s is false, and has no effect: set it as the condition of the dependency in Chart.yaml, or leave it out" .key) -}}
{{- end -}}
{{- end -}}

{{/*
Refuses the `value` of `key` unless it is null or has this `kind`. The schema of the library does not apply to the values of a chart that depends
on the library.
*/}}
{{- define "leasehold.checkValue" -}}
{{- $kinds := dict "string" "a string: quote it" "map" "a map" "slice" "a list" -}}
{{- if not (or (kindIs .kind .value) (kindIs "invalid" .value)) -}}
{{- fail (printf "leasehold: %s is %v, not %s" .key .value (get $kinds .kind)) -}}
{{- end -}}
{{- end -}}
