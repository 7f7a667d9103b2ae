#!/bin/sh
# GNU parallel over the seats of a reservation: `kolo run` stands for its ssh, and a seat is called by its number.
set -eu

export RESERVATION="parallel-$$"
kolo submit -N 4 --per-host cpu=1 -t 30min --id "$RESERVATION" > /dev/null
trap 'kolo cancel "$RESERVATION" > /dev/null' EXIT

cat > kolo-ssh <<'END'
#!/bin/sh
# As ssh: options, a host, and a command for a shell.
while [ "${1#-}" != "$1" ]; do shift; done
seat=$1
shift
[ "$1" = -- ] && shift
exec kolo run --in "$RESERVATION" --on "$seat" --stdin none --env SHELL=/bin/sh -- sh -c "$*"
END
chmod +x kolo-ssh

seq 0 3 | sed 's/^/1\//' > seats.txt
seq 1 20 | parallel --ssh ./kolo-ssh --sshloginfile seats.txt --jobs 1 --keep-order 'echo {} $(({} * {}))'
