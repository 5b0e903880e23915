import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's tools one after the other in one process. A line of the input has a main class and its arguments,
 * between tabs. A line of the output has the exit status, and stdout and stderr in base64.
 */
public class Tools {
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
            int status = run(words[0], Arrays.copyOfRange(words, 1, words.length), out, err);
            Base64.Encoder base64 = Base64.getEncoder();
            answers.println(
                status + " " + base64.encodeToString(out.toByteArray()) + " " + base64.encodeToString(err.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static int run(String main, String[] args, OutputStream out, OutputStream err) throws Exception {
        BlockingQueue<Integer> ended = new ArrayBlockingQueue<>(10);
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        // A thread that exits stays where it is, so that no handler of exceptions sees it.
        Exit.setExitProcedure((status, message) -> {
            ended.add(status);
            while (true) {
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException e) {
                    // nobody waits for it
                }
            }
        });
        Thread thread = new Thread(() -> {
            try {
                Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) args);
                ended.add(0);
            } catch (InvocationTargetException e) {
                e.getCause().printStackTrace();
                ended.add(1);
            } catch (ReflectiveOperationException e) {
                e.printStackTrace();
                ended.add(-1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        int status = ended.take();
        System.out.flush();
        System.err.flush();
        return status;
    }
}
