{{/*
Further leases of one pod: each has a separate sidecar, port, status directory and label.
*/}}

{{/* The parts of the root that templates need, as JSON. The values are those for the lease `name` instead of the first lease. */}}
{{- define "leasehold.rootOf" -}}
{{- $given := .root.Values.leasehold -}}
{{- $own := get $given.extraLeases .name -}}
{{- $values := omit $given "extraLeases" | deepCopy -}}
{{- $_ := set $values "extraLeases" dict -}}
{{- $_ := set $values "leaseName" ($own.leaseName | default (printf "%s-%s" (include "leasehold.lease" .root) .name)) -}}
{{- $_ := set $values "config" (mergeOverwrite (deepCopy ($given.config | default dict)) (deepCopy ($own.config | default dict))) -}}
{{- $port := required (printf "leasehold: set leasehold.extraLeases.%s.port to a port that no other container of the pod uses, such as 9403" .name) $own.port -}}
{{- $_ := set $values "http" (dict "address" $given.http.address "port" $port) -}}
{{- $_ := set $values "statusDirectory" ($own.statusDirectory | default (printf "%s-%s" (trimSuffix "/" $given.statusDirectory) .name)) -}}
{{- $_ := set $values "at" (printf "leasehold.extraLeases.%s" .name) -}}
{{- $_ := set $values "configAt" (printf "leasehold.extraLeases.%s.config" .name) -}}
{{- $all := pick .root.Values "nameOverride" "fullnameOverride" "global" "commonLabels" "commonAnnotations" -}}
{{- $_ := set $all "leasehold" $values -}}
{{- $chart := dict "Name" .root.Chart.Name "IsRoot" .root.Chart.IsRoot "Version" .root.Chart.Version "AppVersion" .root.Chart.AppVersion -}}
{{- $release := dict "Name" .root.Release.Name "Namespace" .root.Release.Namespace "Service" .root.Release.Service -}}
{{- dict "Values" $all "Chart" $chart "Release" $release | toJson -}}
{{- end -}}

{{/* Refuses leases of one pod that share a port, a directory or a label. */}}
{{- define "leasehold.checkLeases" -}}
{{- $leases := list (dict "at" "leasehold" "lease" (include "leasehold.lease" .) "port" (toString .Values.leasehold.http.port) "directory" (trimSuffix "/" .Values.leasehold.statusDirectory)) -}}
{{- range $name, $_ := .Values.leasehold.extraLeases -}}
{{- $at := printf "leasehold.extraLeases.%s" $name -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?$" $name) -}}
{{- fail (printf "leasehold: %s: the key must be at most 12 lower-case letters, digits and -, because the names of a port and a volume contain it; set %s.leaseName for another lease name" $at $at) -}}
{{- end -}}
{{- $root := include "leasehold.rootOf" (dict "root" $ "name" $name) | fromJson -}}
{{- $leases = append $leases (dict "at" $at "lease" (include "leasehold.lease" $root) "port" (toString $root.Values.leasehold.http.port) "directory" (trimSuffix "/" $root.Values.leasehold.statusDirectory)) -}}
{{- end -}}
{{- range $outer := $leases -}}
{{- range $inner := $leases -}}
{{- if hasPrefix (printf "%s/" $outer.directory) $inner.directory -}}
{{- fail (printf "leasehold: %s.statusDirectory is %s, in %s.statusDirectory (%s), which is mounted read-only: set it to another directory" $inner.at $inner.directory $outer.at $outer.directory) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $keys := dict "lease" "leaseName" "port" "port" "directory" "statusDirectory" -}}
{{- range $field, $key := $keys -}}
{{- $seen := dict -}}
{{- range $lease := $leases -}}
{{- $value := get $lease $field -}}
{{- if hasKey $seen $value -}}
{{- fail (printf "leasehold: two leases of one pod have the same %s, %s: set %s.%s to another value" $key $value $lease.at $key) -}}
{{- end -}}
{{- $_ := set $seen $value true -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses additional leases if the pod can have only one. */}}
{{- define "leasehold.noExtraLeases" -}}
{{- with .root.Values.leasehold.extraLeases -}}
{{- fail (printf "leasehold: leave out leasehold.extraLeases (%s): %s" (keys . | sortAlpha | join ", ") $.what) -}}
{{- end -}}
{{- end -}}

{{/* The labels of all leases, as a JSON list that begins with the first lease's label. */}}
{{- define "leasehold.allLabels" -}}
{{- $labels := list (include "leasehold.label" .) -}}
{{- range $name, $_ := .Values.leasehold.extraLeases -}}
{{- $labels = append $labels (include "leasehold.label" (include "leasehold.rootOf" (dict "root" $ "name" $name) | fromJson)) -}}
{{- end -}}
{{- toJson $labels -}}
{{- end -}}

{{/* The ports of all leases, by the names of the ports, as JSON. */}}
{{- define "leasehold.allPorts" -}}
{{- $ports := dict (include "leasehold.portName" "") .Values.leasehold.http.port -}}
{{- range $name, $own := .Values.leasehold.extraLeases -}}
{{- $_ := set $ports (include "leasehold.portName" $name) $own.port -}}
{{- end -}}
{{- toJson $ports -}}
{{- end -}}
