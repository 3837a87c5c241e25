{{/* Refuses values that have no effect, or an unintended effect. */}}
{{- define "app.checkRelease" -}}
{{- if not (or .Values.deployment.enabled .Values.inject.enabled .Values.dashboard.enabled .Values.web.enabled) -}}
{{- fail "leasehold: deployment.enabled is false, and no other part is enabled: set inject.enabled for a release that injects the sidecar into pods of others" -}}
{{- end -}}
{{- range $key, $values := dict "enabled" .Values "leasehold.enabled" .Values.leasehold -}}
{{- if and $.Chart.IsRoot (kindIs "bool" $values.enabled) -}}
{{- fail (printf "leasehold: leave out %s: it is for the condition of a dependency, and has no effect on this chart by itself; set deployment.enabled" $key) -}}
{{- end -}}
{{- include "leasehold.checkCondition" (dict "enabled" $values.enabled "key" $key) -}}
{{- end -}}
{{- /* If a chart is used twice, Helm 3 puts the library's defaults for the second use under the library's own name. */}}
{{- with get .Values "leasehold-sidecar" -}}
{{- if or (not (hasKey $.Subcharts "leasehold-sidecar")) .leaseName .config .extraLeases .extraEnv .mongodb.secretName .image.repository -}}
{{- fail "leasehold: leave out leasehold-sidecar: its values belong under leasehold" -}}
{{- end -}}
{{- end -}}
{{- /* A dependency receives the global values of its parent chart. */}}
{{- $ignored := omit (.Values.global | default dict) "imageRegistry" "imagePullSecrets" -}}
{{- if and .Chart.IsRoot $ignored -}}
{{- fail (printf "leasehold: leave out global.%s: the global values of this chart are imageRegistry and imagePullSecrets, and others would be ignored" (keys $ignored | sortAlpha | join ", global.")) -}}
{{- end -}}
{{- with .Values.podMonitor.scrapeTimeout -}}
{{- if gt (include "leasehold.milliseconds" . | int) (include "leasehold.milliseconds" $.Values.podMonitor.interval | int) -}}
{{- fail (printf "leasehold: podMonitor.scrapeTimeout is %s, longer than podMonitor.interval (%s), which Prometheus refuses: lower it or raise the interval" . $.Values.podMonitor.interval) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- fail "leasehold: podMonitor.enabled and serviceMonitor.enabled: Prometheus would scrape each replica twice: leave one of them out" -}}
{{- end -}}
{{- if and (or .Values.podMonitor.enabled .Values.serviceMonitor.enabled) .Values.prometheusRule.enabled -}}
{{- $interval := include "leasehold.milliseconds" .Values.podMonitor.interval | float64 -}}
{{- $left := include "leasehold.authorityLeft" . | float64 -}}
{{- if gt $interval (mulf 1000 $left) -}}
{{- fail (printf "leasehold: podMonitor.interval is %s: a leader could lose its authority between two scrapes, and no alert would see it; set it to %vs (leasehold.rules.authorityLeftSeconds) or less" .Values.podMonitor.interval $left) -}}
{{- end -}}
{{- range list "LeaseholdMoreThanOneLeader" "LeaseholdStoresDiffer" -}}
{{- $alert := get $.Values.leasehold.rules.alerts . -}}
{{- if and $alert.enabled (le (include "leasehold.milliseconds" $alert.for | float64) (mulf 2 $interval)) -}}
{{- fail (printf "leasehold: leasehold.rules.alerts.%s.for is %s: each handoff or update would alert, because scrapes are podMonitor.interval (%s) apart; set it to more than twice that interval" . ($alert.for | default "empty") $.Values.podMonitor.interval) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses values that would keep the Deployment's pods from working. */}}
{{- define "app.checkPods" -}}
{{- $values := .Values -}}
{{- $form := include "app.form" . -}}
{{- include "leasehold.checkLeases" . -}}
{{- include "leasehold.checkLabels" (dict "root" $ "labels" $values.deployment.podLabels "key" "deployment.podLabels") -}}
{{- include "app.checkKind" . -}}
{{- include "app.checkPodFields" . -}}
{{- if has $form (list "supervisor" "lock") -}}
{{- include "leasehold.checkEnv" (dict "root" . "env" $values.workload.env "key" "workload.env") -}}
{{- end -}}
{{- $locks := eq (include "app.locks" .) "true" -}}
{{- range $name, $port := include "leasehold.allPorts" . | fromJson -}}
{{- range ternary list $values.workload.ports $locks -}}
{{- if eq (int .containerPort) (int $port) -}}
{{- $key := ternary "leasehold.http.port" (printf "leasehold.extraLeases.%s.port" (trimPrefix "lh-" $name)) (eq $name "leasehold") -}}
{{- fail (printf "leasehold: workload.ports has containerPort %v, on which leasehold listens in the same pod: set %s to another port" .containerPort $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $claims := list -}}
{{- range $values.statefulSet.volumeClaimTemplates -}}
{{- $claims = append $claims .metadata -}}
{{- end -}}
{{- range $check := list
  (list "env" ($values.workload.env | default list) "name" "workload.env or leasehold.extraEnv")
  (list "volumeMounts" ($values.workload.volumeMounts | default list) "mountPath" "workload.volumeMounts or leasehold.extraVolumeMounts")
  (list "volumes" (concat ($values.workload.volumes | default list) $claims) "name" "workload.volumes, leasehold.extraVolumes or statefulSet.volumeClaimTemplates")
-}}
{{- $own := include (include "app.part" (dict "root" $ "part" (index $check 0))) $ | fromYamlArray -}}
{{- include "leasehold.checkUnique" (dict "items" (concat $own (index $check 1)) "field" (index $check 2) "keys" (index $check 3)) -}}
{{- end -}}
{{- $own := list -}}
{{- range $name, $_ := include "leasehold.allPorts" . | fromJson -}}
{{- $own = append $own (dict "name" $name) -}}
{{- end -}}
{{- $own = ternary list $own $locks -}}
{{- include "leasehold.checkUnique" (dict "items" (concat $own ($values.workload.ports | default list)) "field" "name" "keys" "workload.ports") -}}
{{- $own = include (include "app.part" (dict "root" . "part" "initContainers")) . | fromYamlArray -}}
{{- $containers := concat $own (list (dict "name" "workload")) ($values.deployment.extraInitContainers | default list) ($values.deployment.extraContainers | default list) -}}
{{- include "leasehold.checkUnique" (dict "items" $containers "field" "name" "keys" "deployment.extraContainers or deployment.extraInitContainers") -}}
{{- include "leasehold.checkResources" (dict "resources" ($values.workload.resources | default dict) "key" "workload.resources") -}}
{{- end -}}

{{/* Refuses fields of the pods that the API server would refuse, or that break a probe or container. */}}
{{- define "app.checkPodFields" -}}
{{- $values := .Values -}}
{{- if and (eq $values.deployment.dnsPolicy "None") (not $values.deployment.dnsConfig) -}}
{{- fail "leasehold: deployment.dnsPolicy is None, so the pods would have no name server: set deployment.dnsConfig.nameservers" -}}
{{- end -}}
{{- if and (include "app.isJob" .) $values.job.podFailurePolicy (ne $values.job.restartPolicy "Never") -}}
{{- fail (printf "leasehold: job.podFailurePolicy needs job.restartPolicy: Never, and it is %s: set it to Never, or leave job.podFailurePolicy out" $values.job.restartPolicy) -}}
{{- end -}}
{{- $locks := include "app.locks" . -}}
{{- if and (not $locks) (or (hasPrefix "127." $values.leasehold.http.address) (has $values.leasehold.http.address (list "::1" "[::1]" "localhost"))) -}}
{{- fail (printf "leasehold: leasehold.http.address is %s, which the kubelet cannot reach, so every probe would fail: set it to 0.0.0.0 or [::]" $values.leasehold.http.address) -}}
{{- end -}}
{{- if not $locks -}}
{{- range $name, $port := include "leasehold.allPorts" . | fromJson -}}
{{- range $container := $values.deployment.extraContainers -}}
{{- range $container.ports -}}
{{- if and (eq (int .containerPort) (int $port)) (ne (.protocol | default "TCP") "UDP") -}}
{{- fail (printf "leasehold: deployment.extraContainers: %s has containerPort %v, on which leasehold listens in the same pod: set %s to another port" $container.name .containerPort (ternary "leasehold.http.port" (printf "leasehold.extraLeases.%s.port" (trimPrefix "lh-" $name)) (eq $name "leasehold"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses values without an effect on this kind of workload. */}}
{{- define "app.checkKind" -}}
{{- $kind := .Values.workload.kind -}}
{{- $job := include "app.isJob" . -}}
{{- $locks := include "app.locks" . -}}
{{- $name := include "leasehold.fullname" . -}}
{{- if and (ne $kind "Deployment") (gt (len $name) 52) -}}
{{- fail (printf "leasehold: the name %s is longer than 52 characters, and Kubernetes appends to it in the names of the pods or Jobs of a %s: set fullnameOverride" $name $kind) -}}
{{- end -}}
{{- if and (ne $kind "Deployment") (eq .Values.deployment.strategy.type "Recreate") -}}
{{- fail (printf "leasehold: deployment.strategy is for a Deployment, and workload.kind is %s: leave it out%s" $kind (get (dict "StatefulSet" "; set statefulSet.updateStrategy" "DaemonSet" "; set daemonSet.updateStrategy") $kind)) -}}
{{- end -}}
{{- if and (eq $kind "DaemonSet") (eq (toString .Values.deployment.replicas) "0") -}}
{{- fail "leasehold: deployment.replicas is 0, and workload.kind is DaemonSet, which has one pod on each node: leave it out, and set deployment.nodeSelector to a label of no node" -}}
{{- end -}}
{{- range list "volumeClaimTemplates" "persistentVolumeClaimRetentionPolicy" "serviceName" -}}
{{- if and (ne $kind "StatefulSet") (get $.Values.statefulSet .) -}}
{{- fail (printf "leasehold: statefulSet.%s is for a StatefulSet, and workload.kind is %s: leave it out, or set workload.kind to StatefulSet" . $kind) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $kind "CronJob") .Values.cronJob.schedule -}}
{{- fail (printf "leasehold: cronJob.schedule is for a CronJob, and workload.kind is %s: leave it out, or set workload.kind to CronJob" $kind) -}}
{{- end -}}
{{- if and (eq $kind "CronJob") .Values.job.suspend -}}
{{- fail "leasehold: job.suspend is for a Job, and workload.kind is CronJob: set cronJob.suspend" -}}
{{- end -}}
{{- $lock := .Values.job.lock -}}
{{- range $key, $value := $lock -}}
{{- if and $value (not $locks) -}}
{{- fail (printf "leasehold: job.lock.%s is for a Job or CronJob with mode supervisor, which runs under a lock: leave it out, or set workload.kind and mode" $key) -}}
{{- end -}}
{{- end -}}
{{- if and $lock.key (not $lock.oncePer) -}}
{{- fail "leasehold: job.lock.key names the work that job.lock.oncePer counts: set job.lock.oncePer too, or leave it out" -}}
{{- end -}}
{{- if and $lock.slots $lock.oncePer -}}
{{- fail "leasehold: job.lock.oncePer counts the work of one holder at a time: leave out job.lock.slots" -}}
{{- end -}}
{{- if $job -}}
{{- if .Values.deployment.minReadySeconds -}}
{{- fail (printf "leasehold: leave out deployment.minReadySeconds: a %s does not wait for pods to be ready" $kind) -}}
{{- end -}}
{{- range $value, $service := dict "service.enabled" .Values.service "service.followers.enabled" .Values.service.followers -}}
{{- if $service.enabled -}}
{{- fail (printf "leasehold: %s routes to replicas that stay, and the pods of a %s end: leave it out, or set workload.kind to Deployment or StatefulSet" $value $kind) -}}
{{- end -}}
{{- end -}}
{{- if .Values.prometheusRule.enabled -}}
{{- fail (printf "leasehold: prometheusRule.enabled would alert between the runs of a %s, when no pod leads: leave it out, and alert on the failure of the Job (kube_job_status_failed)" $kind) -}}
{{- end -}}
{{- end -}}
{{- range $value, $monitor := pick .Values "podMonitor" "serviceMonitor" -}}
{{- if and $locks $monitor.enabled -}}
{{- fail (printf "leasehold: %s.enabled: a %s in mode supervisor runs under a lock, which serves no metrics: leave it out, or set mode to sidecar" $value $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses a Service that cannot find the leader, or that the API server would refuse. */}}
{{- define "app.checkService" -}}
{{- $value := .value -}}
{{- with .root -}}
{{- $service := .Values.service -}}
{{- if not (include "leasehold.labelled" .) -}}
{{- fail (printf "leasehold: %s needs labels: leasehold.kubernetes.enabled, and the policy or leasehold.kubernetes.allowUnrestrictedStatusPatch" $value) -}}
{{- end -}}
{{- if and (eq $value "service.followers.enabled") (hasPrefix "supervisor" .Values.mode) -}}
{{- fail "leasehold: service.followers.enabled: in mode supervisor the workload runs in the leader's pod only, so no follower answers: leave it out, or set mode to sidecar" -}}
{{- end -}}
{{- include "app.checkServiceName" . -}}
{{- if and (eq $service.clusterIP "None") (ne $service.type "ClusterIP") -}}
{{- fail (printf "leasehold: service.clusterIP is None, and service.type is %s, which needs an address: leave service.clusterIP out, or set service.type to ClusterIP" $service.type) -}}
{{- end -}}
{{- $names := list -}}
{{- range concat (list (dict "ports" .Values.workload.ports)) (.Values.deployment.extraContainers | default list) -}}
{{- range .ports -}}
{{- $names = append $names (.name | default "") -}}
{{- end -}}
{{- end -}}
{{- range concat (list $service) ($service.extraPorts | default list) -}}
{{- if and (kindIs "string" .targetPort) (not (has .targetPort $names)) -}}
{{- fail (printf "leasehold: the targetPort %s of the port %s of the Service is not the name of a port of the pods: add it to workload.ports, or set service.targetPort or service.extraPorts to a number" .targetPort (.portName | default .name)) -}}
{{- end -}}
{{- end -}}
{{- $ports := list -}}
{{- range concat (list (dict "port" $service.port)) ($service.extraPorts | default list) -}}
{{- $ports = append $ports (dict "port" (printf "%v/%s" .port (.protocol | default "TCP"))) -}}
{{- end -}}
{{- include "leasehold.checkUnique" (dict "items" $ports "field" "port" "keys" "service.extraPorts") -}}
{{- range list "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if and (get $service .) (ne $service.type "LoadBalancer") -}}
{{- fail (printf "leasehold: service.%s is for a load balancer, and service.type is %s: leave it out, or set service.type to LoadBalancer" . $service.type) -}}
{{- end -}}
{{- end -}}
{{- range list "externalTrafficPolicy" "nodePort" -}}
{{- if and (get $service .) (eq $service.type "ClusterIP") -}}
{{- fail (printf "leasehold: service.%s is for traffic from outside the cluster, and service.type is ClusterIP: leave it out, or set service.type to NodePort or LoadBalancer" .) -}}
{{- end -}}
{{- end -}}
{{- if and $service.sessionAffinityTimeoutSeconds (ne $service.sessionAffinity "ClientIP") -}}
{{- fail "leasehold: service.sessionAffinityTimeoutSeconds needs service.sessionAffinity: ClientIP" -}}
{{- end -}}
{{- include "leasehold.checkUnique" (dict "items" (concat (list (dict "name" $service.portName)) ($service.extraPorts | default list)) "field" "name" "keys" "service.extraPorts") -}}
{{- end -}}
{{- end -}}
