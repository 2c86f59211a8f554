// Reads {"secret", "requests": [{"headers", "body" (base64)}]} and verifies every request with both npm verifiers.
import { readFileSync } from "node:fs";
import { Webhook as StandardWebhook } from "standardwebhooks";
import { Webhook as SvixWebhook } from "svix";

const { secret, requests } = JSON.parse(readFileSync(0, "utf8"));
const verifiers = [new StandardWebhook(secret), new SvixWebhook(secret)];
for (const { headers, body } of requests) {
  const text = Buffer.from(body, "base64").toString("utf8");
  for (const verifier of verifiers) verifier.verify(text, headers);
}
console.log(requests.length);
