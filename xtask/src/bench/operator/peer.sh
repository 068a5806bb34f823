# Starts the Go operator as its Deployment would: its certificate lies in a Secret, and the kubelet that
# would mount it is not here. What follows is the operator's command.
folder=/tmp/k8s-webhook-server/serving-certs
secret="kubectl get secret --namespace=kubeflow training-operator-webhook-cert"
mkdir -p "$folder"
(
  until [ -n "$($secret --output='jsonpath={.data.tls\.key}')" ]; do sleep 0.2; done
  for file in ca.crt ca.key tls.crt tls.key; do
    key=$(echo "$file" | sed 's/\./\\./')
    $secret --output="jsonpath={.data.$key}" | base64 -d > "$folder/$file"
  done
) &
exec "$@"
