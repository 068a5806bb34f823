# Starts the Go operator as its Deployment would: its certificate lies in a Secret, and the kubelet that
# would mount it is not here. What follows is the operator's command.
folder=/tmp/k8s-webhook-server/serving-certs
secret="kubectl get secret --namespace=kubeflow training-operator-webhook-cert"
# The operator waits until the folder has a certificate. One of an earlier cluster, or a certificate beside the key of another,
# would stop it, so the files of this cluster appear all at once.
rm -rf "$folder" "$folder.new"
mkdir -p "$folder.new"
(
  until [ -n "$($secret --output='jsonpath={.data.tls\.key}')" ]; do sleep 0.2; done
  for file in ca.crt ca.key tls.crt tls.key; do
    key=$(echo "$file" | sed 's/\./\\./')
    $secret --output="jsonpath={.data.$key}" | base64 -d > "$folder.new/$file"
  done
  mv "$folder.new" "$folder"
) &
exec "$@"
