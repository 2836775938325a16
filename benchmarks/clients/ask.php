<?php
// Asks for decisions with the curl extension of PHP, or with its streams where the extension is missing.
[, $url, $n] = $argv;
$decided = 0;
$handle = extension_loaded("curl") ? curl_init($url) : null;
for ($i = 0; $i < (int) $n; $i++) {
    $body = json_encode(["session" => "php-$i", "step" => 0]);
    if ($handle) {
        curl_setopt_array($handle, [
            CURLOPT_POSTFIELDS => $body,
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_2_0,
            CURLOPT_HTTPHEADER => ["Content-Type: application/json"],
        ]);
        $answer = curl_exec($handle);
    } else {
        $options = ["method" => "POST", "header" => "Content-Type: application/json", "content" => $body];
        $answer = file_get_contents($url, false, stream_context_create(["http" => $options]));
    }
    $told = json_decode($answer, true);
    $decided += isset($told["arm"]) && $told["session"] === "php-$i";
}
echo $decided, "\n";
