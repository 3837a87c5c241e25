# Writes the properties of this process to the file $OUT, as "name<TAB>value" lines. $OUTER is the
# process id of the shell that ran the tool.
me=/proc/$$

# Skips the second field of stat(5), which may contain any character.
set -- $(sed 's/.*) //' "/proc/$OUTER/stat")
outer_group=$3 outer_session=$4
set -- $(sed 's/.*) //' $me/stat)

relation() {
    if [ "$1" = $$ ]; then echo own; elif [ "$1" = "$2" ]; then echo 'of the shell'; else echo another; fi
}

# Lists the descriptors before this shell redirects its output.
descriptors=
for fd in $me/fd/*; do
    # Skips the descriptor that the shell used to list the directory.
    [ -L "$fd" ] || continue
    flags=$(sed -n 's/^flags:[[:space:]]*//p' $me/fdinfo/"${fd##*/}")
    # Skips close-on-exec descriptors, because this shell opened them.
    case $flags in 02??????) continue ;; esac
    # Redirecting the loop would add a descriptor to this shell.
    link=$(readlink "$fd")
    descriptors="${descriptors}descriptor ${fd##*/}	$link $flags
"
done

{
    printf 'process group\t%s\n' "$(relation "$3" "$outer_group")"
    printf 'session\t%s\n' "$(relation "$4" "$outer_session")"
    printf 'controlling terminal\t%s\n' "$5"
    printf 'foreground\t%s\n' "$([ "$6" = "$3" ] && echo yes || echo no)"
    printf 'niceness\t%s\n' "${17}"
    printf 'scheduling\t%s\n' "policy ${39}, priority ${38}"
    printf 'I/O priority\t%s\n' "$(ionice -p $$)"
    # Reads the file without starting a program, because the shell blocks signals while it starts a
    # program.
    while IFS=: read -r name value; do
        case $name in
            SigBlk | SigIgn | Cap* | NoNewPrivs | Seccomp | Uid | Gid | Groups | Umask | VmLck | CoreDumping | \
                THP_enabled | Cpus_allowed | Mems_allowed) printf '%s\t%s\n' $name "${value#?}" ;;
        esac
    done < $me/status
    sed -nE 's/^(Max [a-z ]*[a-z])  +/limit: \1\t/p' $me/limits
    for file in oom_score_adj timerslack_ns coredump_filter personality loginuid attr/current; do
        [ -r $me/$file ] && printf '%s\t%s\n' $file "$(tr -d '\0' 2>&- < $me/$file)"
    done
    printf 'cgroup\t%s\n' "$(tr '\n' ' ' < $me/cgroup)"
    for name in cwd root exe; do printf '%s\t%s\n' $name "$(readlink $me/$name)"; done
    for name in $me/ns/*; do printf 'namespace: %s\t%s\n' "${name##*/}" "$(readlink "$name")"; done
    printf '%s' "$descriptors"
    # Variables may contain line breaks, which `tr` replaces with `|`.
    tr '\n\0' '|\n' < $me/environ | sed -nE 's/^([^=]*)=(.*)/variable \1\t\2/p'
    printf 'number of variables\t%s\n' "$(tr '\n\0' '|\n' < $me/environ | grep -vc ^LEASEHOLD_)"
} 9>&- > "$OUT.part" 2>> "$OUT.errors"
mv "$OUT.part" "$OUT"
