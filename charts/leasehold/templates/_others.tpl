{{/*
Leases that two releases of the namespace, or two uses of the chart in this release, would share by accident. The chart can derive one name from
different values: for example, the release orders with the additional lease reports, and the release orders-reports. Releases may share an
explicit name on purpose. If the name of the first lease is explicit, the names that are derived from it may also be shared.
*/}}

{{/*
The leases or the lock with derived names, as a JSON object by lease and collection. Each item contains the `value` that would set its name.
`from` is the first lease, if its name is explicit and this name is derived from it.
*/}}
{{- define "app.derivedNames" -}}
{{- $names := dict -}}
{{- $first := "" -}}
{{- if .Values.leasehold.leaseName -}}
{{- $first = printf "%s in %s" (include "leasehold.lease" .) (include "leasehold.collection" .) -}}
{{- else -}}
{{- $_ := set $names (printf "%s in %s" (include "leasehold.lease" .) (include "leasehold.collection" .)) (dict "value" "leasehold.leaseName" "from" "") -}}
{{- end -}}
{{- range $key, $own := .Values.leasehold.extraLeases -}}
{{- if not $own.leaseName -}}
{{- $root := include "leasehold.rootOf" (dict "root" $ "name" $key) | fromJson -}}
{{- $value := printf "leasehold.extraLeases.%s.leaseName" $key -}}
{{- $_ := set $names (printf "%s in %s" (include "leasehold.lease" $root) (include "leasehold.collection" $root)) (dict "value" $value "from" $first) -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Refuses a derived name of a lease or lock if another release or use of the chart derives the name from other values. */}}
{{- define "app.checkOthers" -}}
{{- $own := include "app.recordName" . -}}
{{- $others := list -}}
{{- range $record, $names := .Release.leaseholdRecords -}}
{{- if ne $record $own -}}
{{- $others = append $others (dict "of" "another use of the chart in this release" "names" $names) -}}
{{- end -}}
{{- end -}}
{{- range (lookup "v1" "ConfigMap" .Release.Namespace "").items -}}
{{- $of := get (.metadata.annotations | default dict) "meta.helm.sh/release-name" -}}
{{- if and $of (ne $of $.Release.Name) (hasSuffix ".leasehold" .metadata.name) -}}
{{- $others = append $others (dict "of" (printf "the release %s" $of) "names" ((.data | default dict).derivedNames | default "{}" | fromJson)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $derived := include "app.derivedNames" . | fromJson -}}
{{- range $others -}}
{{- $other := get .names $name -}}
{{- if and $other (not (and $derived.from (eq $derived.from $other.from))) -}}
{{- fail (printf "leasehold: %s also contends for %s, and both names are defaults, so only one of the two would have a leader: set %s to another name, or to %s to share it" .of $name $derived.value (splitList " " $name | first)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
