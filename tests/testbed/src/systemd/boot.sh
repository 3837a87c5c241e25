# Boots systemd as process 1 of new namespaces, on a copy-on-write view of this machine's root:
# boot.sh CGROUP SCRATCH PROGRAM. The network is shared with this machine.
set -e
cgroup=$1 scratch=$2 program=$3
if [ "$4" != inside ]; then
    # The group becomes the root of the cgroup namespace.
    echo 0 > "$cgroup/cgroup.procs"
    exec unshare --mount --propagation private --pid --fork --kill-child --cgroup --ipc --uts \
        -- sh -c "$0" "$0" "$cgroup" "$scratch" "$program" inside
fi

mount -t tmpfs -o mode=755 leasehold-systemd "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
root=$scratch/root
mount -t overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" leasehold-systemd "$root"
mount -t proc proc "$root/proc"
# Settings of the kernel belong to this machine.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for directory in run tmp var/tmp var/log root home; do
    mkdir -p "$root/$directory"
    mount -t tmpfs -o mode=755 leasehold-systemd "$root/$directory"
done
chmod 1777 "$root/tmp" "$root/var/tmp"
mount -t tmpfs -o mode=755 leasehold-systemd "$root/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 "$root/dev/tty" c 5 0
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"

# Only the units that the test needs: no service of this machine starts.
units=$root/usr/lib/systemd/system
mkdir "$scratch/units"
for unit in sysinit.target basic.target shutdown.target network-online.target \
    systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket; do
    cp "$units/$unit" "$scratch/units/"
done
for directory in etc/systemd usr/lib/systemd/system usr/lib/systemd/system-generators; do
    mount -t tmpfs -o mode=755 leasehold-systemd "$root/$directory"
done
mkdir -p "$root/etc/systemd/system" "$units/basic.target.wants"
cp "$scratch/units"/* "$units/"
ln -s ../systemd-journald.socket ../systemd-journald-dev-log.socket ../systemd-journald.service "$units/basic.target.wants/"
tr -d - < /proc/sys/kernel/random/uuid > "$root/etc/machine-id"
echo unit > "$root/etc/hostname"

touch "$root/usr/bin/leasehold"
mount --bind "$program" "$root/usr/bin/leasehold"
cd "$root"
pivot_root . mnt
umount -l /mnt
# systemd mounts credentials in another namespace, from which the mounts must propagate.
mount --make-rshared /
exec env -i container=leasehold-testbed PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /usr/lib/systemd/systemd --unit=basic.target --log-target=journal --show-status=no
