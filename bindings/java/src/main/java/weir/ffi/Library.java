package weir.ffi;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** Finds the C library: at the path in the system property {@code weir.library}, in this jar, or where the system looks for libraries. */
public final class Library {
    private static final SymbolLookup LOOKUP;
    private static final String FAILURE;

    static {
        SymbolLookup lookup = null;
        String failure = null;
        try {
            lookup = find();
            failure = versions(lookup);
        } catch (IllegalCallerException e) {
            failure = "native access is not enabled: start java with --enable-native-access=ALL-UNNAMED";
        } catch (IOException | RuntimeException | UnsatisfiedLinkError e) {
            failure = "the library libweir.so cannot be loaded: " + e.getMessage();
        }
        LOOKUP = failure == null ? lookup : null;
        FAILURE = failure;
    }

    private Library() {}

    /** Returns why the library cannot be used; {@code null} if it can. */
    public static String failure() {
        return FAILURE;
    }

    private static SymbolLookup find() throws IOException {
        String path = System.getProperty("weir.library");
        if (path != null) {
            return SymbolLookup.libraryLookup(Path.of(path), Arena.global());
        }
        String machine = System.getProperty("os.name").toLowerCase() + "-" + System.getProperty("os.arch");
        try (InputStream inside = Library.class.getResourceAsStream("/weir/native/" + machine + "/libweir.so")) {
            if (inside == null) {
                return SymbolLookup.libraryLookup("libweir.so", Arena.global());
            }
            Path copy = Files.createTempFile("libweir", ".so");
            try {
                Files.copy(inside, copy, StandardCopyOption.REPLACE_EXISTING);
                return SymbolLookup.libraryLookup(copy, Arena.global());
            } finally {
                // A library that is loaded stays without its name.
                Files.delete(copy);
            }
        }
    }

    /** Says whether library and classes are of two versions. */
    private static String versions(SymbolLookup lookup) {
        MethodHandle abi = handle(lookup, "weir_abi", FunctionDescriptor.of(java.lang.foreign.ValueLayout.JAVA_INT));
        try {
            int found = (int) abi.invokeExact();
            return found == Native.WEIR_ABI
                ? null
                : "libweir.so has version " + found + " of its functions, and these classes know version " + Native.WEIR_ABI;
        } catch (Throwable e) {
            return "the library libweir.so cannot be called: " + e.getMessage();
        }
    }

    private static MethodHandle handle(
        SymbolLookup lookup, String name, FunctionDescriptor descriptor, Linker.Option... options) {
        var address = lookup.find(name);
        if (address.isEmpty()) {
            throw new UnsatisfiedLinkError("it has no function " + name + ": library and classes are of two versions");
        }
        return Linker.nativeLinker().downcallHandle(address.get(), descriptor, options);
    }

    /** Returns the handle of a function. Without the library, the handle throws. */
    static MethodHandle function(String name, FunctionDescriptor descriptor, Linker.Option... options) {
        if (LOOKUP != null) {
            return handle(LOOKUP, name, descriptor, options);
        }
        MethodType type = descriptor.toMethodType();
        MethodHandle thrower = MethodHandles.throwException(type.returnType(), UnsatisfiedLinkError.class);
        return MethodHandles.dropArguments(thrower.bindTo(new UnsatisfiedLinkError(FAILURE)), 0, type.parameterList());
    }

    /** Returns the handle of a function that ends soon and waits for nothing: a collector waits for it, and a call is 5 ns cheaper. */
    static MethodHandle shortFunction(String name, FunctionDescriptor descriptor) {
        return function(name, descriptor, Linker.Option.critical(false));
    }

    /** Holds a layout against the sizes and offsets that the library has. */
    static void check(String name, StructLayout layout, long size, long align, String[] fields, long[] offsets) {
        boolean same = layout.byteSize() == size && layout.byteAlignment() == align;
        for (int i = 0; i < fields.length; i++) {
            same &= layout.byteOffset(MemoryLayout.PathElement.groupElement(fields[i])) == offsets[i];
        }
        if (!same) {
            throw new LinkageError(name + " lies otherwise in Java than in C");
        }
    }
}
