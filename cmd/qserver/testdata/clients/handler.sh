#!/bin/sh
# What the workers' test does: see workers_test.go.
read -r name action argument
echo "$name" >>"$LOG"
while [ "$action" = wait ] && ! [ -e "$argument" ]; do
	sleep 0.01
done
runs=$(grep -cx "$name" "$LOG")
[ "$action" != fail ] || [ "$runs" -gt "$argument" ]
