import org.apache.kafka.common.protocol.Errors;

/** Prints every error of the protocol with the class that stands for it. */
public class ErrorClasses {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values())
            if (error.exception() != null)
                System.out.println(error.code() + " " + error.exception().getClass().getName());
    }
}
