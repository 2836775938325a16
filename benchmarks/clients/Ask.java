import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Asks for decisions with the HTTP client of the JDK as it comes: it offers HTTP/2 by Upgrade. */
public class Ask {
    public static void main(String[] given) throws Exception {
        var client = HttpClient.newHttpClient();
        int decided = 0;
        for (int i = 0; i < Integer.parseInt(given[1]); i++) {
            var body = HttpRequest.BodyPublishers.ofString("{\"session\": \"java-" + i + "\", \"step\": 0}");
            var request = HttpRequest.newBuilder(URI.create(given[0])).header("Content-Type", "application/json").POST(body).build();
            try {
                var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                if (answer.statusCode() == 200 && answer.body().contains("\"session\":\"java-" + i + "\"")) decided++;
            } catch (java.io.IOException lost) {  // the connection was closed: no decision
            }
        }
        System.out.println(decided);
    }
}
